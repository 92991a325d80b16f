"""What the server does with an average: take it as it is, or step towards it like an optimizer (Reddi et al., 2021).

The change Δ = average − model is taken for a negative gradient. `sgd`: w ← w + η Δ. `momentum` (FedAvgM):
v ← β v + Δ, w ← w + η v. `adam` (FedAdam): m ← β m + (1 − β) Δ, v ← β₂ v + (1 − β₂) Δ², w ← w + η m / (√v + τ).
Where clients carry parts of the network, what nobody held in a round stays as it is, and so does its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

ServerOptimizerKind = Literal["average", "sgd", "momentum", "adam"]
DEFAULT_RATES = {"sgd": 1.0, "momentum": 1.0, "adam": 0.01}
SECOND_BETA, ADAPTIVITY = 0.99, 1e-3  # β₂ and τ, as in the original experiments
PREFIX = "server_optimizer."


@dataclass(frozen=True)
class ServerOptimizer:
    """A kind of step, its rate η and its momentum β. Its memory lives in the server's tensors."""

    kind: Literal["sgd", "momentum", "adam"]
    rate: float
    momentum: float

    def step(
        self,
        memory: dict[str, Tensor],
        before: Mapping[str, Tensor],
        averages: Mapping[str, Tensor],
        held: Callable[[str], Tensor],
    ) -> dict[str, Tensor]:
        """Give the new value of every averaged part; `memory` is updated. `held` is 0 where nobody held an entry."""
        stepped = {}
        for name, average in averages.items():
            present = held(name) > 0
            step = self._step(memory, name, average - before[name], present)
            stepped[name] = torch.where(present, before[name] + step, before[name])
        return stepped

    def _step(self, memory: dict[str, Tensor], name: str, change: Tensor, present: Tensor) -> Tensor:
        if self.kind == "sgd":
            return self.rate * change

        def blend(which: str, value: Tensor, keep: float, take: float) -> Tensor:
            key = f"{PREFIX}{which}.{name}"
            known = memory.get(key, torch.zeros_like(value))
            memory[key] = torch.where(present, keep * known + take * value, known)
            return memory[key]

        if self.kind == "momentum":
            return self.rate * blend("velocity", change, self.momentum, 1.0)
        mean = blend("mean", change, self.momentum, 1.0 - self.momentum)
        square = blend("square", change.square(), SECOND_BETA, 1.0 - SECOND_BETA)
        return self.rate * mean / (square.sqrt() + ADAPTIVITY)
