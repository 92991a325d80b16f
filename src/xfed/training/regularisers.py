"""Terms that look at parameters instead of outputs: pulls towards a reference, linear corrections.

Each takes reference numbers by parameter name and applies to whatever trains in the phase; BatchNorm statistics
are no parameters and are never touched. Strengths may be 0: the term then runs and contributes exactly nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from xfed.training.objectives import Batch, Objective

Reference = Mapping[str, Tensor]


def _pairs(batch: Batch, reference: Reference) -> Iterator[tuple[Tensor, Tensor]]:
    for name, parameter in batch.network.named_parameters():
        if parameter.requires_grad:
            yield parameter, reference[name]


@dataclass(frozen=True)
class Proximal(Objective):
    """(strength / 2) ‖w − reference‖²: squared, so that its gradient is strength · (w − reference)."""

    reference: Reference
    strength: float

    def __call__(self, batch: Batch) -> Tensor:
        """Add up the squared distance of everything that trains."""
        distances = [(w - r).square().sum() for w, r in _pairs(batch, self.reference)]
        return 0.5 * self.strength * torch.stack(distances).sum()


@dataclass(frozen=True)
class Linear(Objective):
    """−⟨direction, w⟩: FedDyn's first-order correction."""

    direction: Reference

    def __call__(self, batch: Batch) -> Tensor:
        """Add up the products of everything that trains."""
        return -torch.stack([(w * d).sum() for w, d in _pairs(batch, self.direction)]).sum()


@dataclass(frozen=True)
class Alignment(Objective):
    """strength · ⟨w, target⟩ / ‖w‖: negative strength pulls towards the target's direction, positive pushes away."""

    target: Reference
    strength: float

    def __call__(self, batch: Batch) -> Tensor:
        """Compute the cosine, up to the target's length, of everything that trains."""
        pairs = list(_pairs(batch, self.target))
        product = torch.stack([(w * t).sum() for w, t in pairs]).sum()
        norm = torch.stack([w.square().sum() for w, _ in pairs]).sum().sqrt()
        return self.strength * product / norm
