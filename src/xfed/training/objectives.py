"""What local training minimises: small terms over one batch, added with `+`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from xfed.models.network import EarlyExitNetwork


@dataclass(frozen=True)
class Batch:
    """Everything a term may look at: one batch, and the network in the middle of training on it."""

    inputs: Tensor
    labels: Tensor
    positions: Tensor
    """Where the samples stand in the client's training view, for targets computed beforehand."""
    features: dict[int, Tensor]
    logits: dict[int, Tensor]
    network: EarlyExitNetwork
    epoch: int = 0
    """Which pass of the phase over the client's samples this is, counted from 0."""


class Objective:
    """A term of the training loss: a scalar of one batch."""

    def __call__(self, batch: Batch) -> Tensor:
        """Compute the term."""
        raise NotImplementedError

    def parameters(self) -> list[Tensor]:
        """Give parameters of the term's own that train beside the network's."""
        return []

    def __add__(self, other: Objective) -> Objective:
        return Sum((self, other))


@dataclass(frozen=True)
class Sum(Objective):
    """Terms added up, in order."""

    terms: Sequence[Objective]

    def __call__(self, batch: Batch) -> Tensor:
        """Add the terms."""
        return torch.stack([term(batch) for term in self.terms]).sum()

    def parameters(self) -> list[Tensor]:
        """Collect the terms' own parameters."""
        return [parameter for term in self.terms for parameter in term.parameters()]


@dataclass(frozen=True)
class OnRepeats(Objective):
    """A term that counts from a phase's second epoch on, when samples come again, and is 0 before."""

    term: Objective

    def __call__(self, batch: Batch) -> Tensor:
        """Compute the term, or nothing."""
        return self.term(batch) if batch.epoch else next(iter(batch.logits.values())).new_zeros(())

    def parameters(self) -> list[Tensor]:
        """Give the term's own parameters."""
        return self.term.parameters()


@dataclass(frozen=True)
class JointExits(Objective):
    """Mean cross-entropy of the exits: Σ_{j ∈ active} CE(z_j, y) / m.

    The weight is 1 / m whatever the number of active exits (Section 4.4).
    """

    def __call__(self, batch: Batch) -> Tensor:
        """Sum over the exits that are active in this phase."""
        losses = [F.cross_entropy(logits, batch.labels) for logits in batch.logits.values()]
        return torch.stack(losses).sum() / len(batch.network.exits)
