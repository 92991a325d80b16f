"""Linear exits fitted to a backbone as it is now, on features computed once.

A personal exit was last trained on the backbone of the client's last participation; since then the backbone moved on.
Refitting minimises (1/n) Σ_i CE(W f_i + b, y_i) + (ρ/2) ‖(W, b) − (W₀, b₀)‖², which is convex: L-BFGS finds
the one minimum in milliseconds, and ρ holds clients with few samples to what they had.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ITERATIONS, EVALUATIONS = 100, 150
TOLERANCE = 1e-6


@dataclass(frozen=True)
class LinearExit:
    """Weights (classes × width) and biases of an exit."""

    weight: Tensor
    bias: Tensor


@torch.no_grad()
def refit(start: LinearExit, features: Tensor, labels: Tensor, rho: float) -> tuple[LinearExit, int]:
    """Fit an exit, starting from and held to `start`; give it and the MACs that took.

    In float64, so that the result is the minimum to float32.
    """
    inputs = torch.cat([features.double(), features.new_ones(len(features), 1).double()], dim=1)
    held = torch.cat([start.weight.double(), start.bias.double()[:, None]], dim=1)
    targets = F.one_hot(labels, len(start.bias)).double()
    fitted = held.clone().requires_grad_()
    evaluations = 0

    def loss() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        answers = F.log_softmax(inputs @ fitted.T, dim=1)
        moved = fitted - held
        fitted.grad = (answers.exp() - targets).T @ inputs / len(inputs) + rho * moved
        return -answers.gather(1, labels[:, None]).mean() + 0.5 * rho * moved.square().sum()

    torch.optim.LBFGS(
        [fitted],
        max_iter=ITERATIONS,
        max_eval=EVALUATIONS,
        tolerance_grad=TOLERANCE,
        history_size=10,
        line_search_fn="strong_wolfe",
    ).step(loss)
    found = fitted.detach().to(start.weight.dtype)
    macs = 2 * evaluations * inputs.numel() * len(held)
    return LinearExit(found[:, :-1].contiguous(), found[:, -1].contiguous()), macs
