"""Distillation: shallow exits learn from a teacher's logits.

Σ_{j ∈ students} τ² KL(softmax(z_teacher / τ) ‖ softmax(z_j / τ)), mean over the batch; no gradient reaches the
teacher (Section 4.4 of the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from xfed.models.network import EarlyExitNetwork
from xfed.training.objectives import Batch, Objective
from xfed.training.trainer import Meter

Teacher = Callable[[Batch], Tensor]
"""Gives the teacher's logits for a batch, without gradient."""


def divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Compute τ² KL(teacher ‖ student) at temperature τ, from logits, mean over the batch."""
    target = F.log_softmax(teacher / temperature, dim=1)
    answer = F.log_softmax(student / temperature, dim=1)
    return F.kl_div(answer, target, reduction="batchmean", log_target=True) * temperature**2


@dataclass(frozen=True)
class Distillation(Objective):
    """λ Σ_{j ∈ students} τ² KL(teacher ‖ exit j)."""

    teacher: Teacher
    students: Collection[int]
    strength: float
    temperature: float

    def __call__(self, batch: Batch) -> Tensor:
        """Sum over the students, all of which must be active in the phase."""
        target = self.teacher(batch)
        terms = [divergence(target, batch.logits[j], self.temperature) for j in self.students]
        return self.strength * torch.stack(terms).sum()


@dataclass(frozen=True)
class LiveTeacher:
    """The client's own last exit as it is at this very step, detached."""

    exit_index: int

    def __call__(self, batch: Batch) -> Tensor:
        """Read the logits off the batch."""
        return batch.logits[self.exit_index].detach()


@dataclass(frozen=True)
class CachedTeacher:
    """A frozen teacher whose logits for the whole training view were computed beforehand."""

    logits: Tensor

    def __call__(self, batch: Batch) -> Tensor:
        """Look the batch's samples up."""
        return self.logits[batch.positions]


@dataclass(frozen=True)
class SteppingTeacher:
    """A frozen teacher that runs once per step: needed where BatchNorm normalises by the batch at hand."""

    network: EarlyExitNetwork
    exit_index: int
    macs_per_sample: int
    meter: Meter

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        """Run the teacher on the batch."""
        self.meter.macs += self.macs_per_sample * len(batch.labels)
        logits: Tensor = self.network(batch.inputs, [self.exit_index]).logits[self.exit_index]
        return logits
