"""ScaleFL (Ilhan et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from xfed.algorithms.common.levels import level_of, refuse_local_statistics, refuse_single_exit
from xfed.algorithms.fedavg import FedAvg
from xfed.components import BaseSettings
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client
from xfed.protocol.message import Message
from xfed.protocol.uploads import Weighting
from xfed.training.distillation import divergence
from xfed.training.objectives import Batch, Objective
from xfed.training.trainer import Phase

ORIGINAL_WIDTHS = (Fraction(7, 10), Fraction(7, 10), Fraction(3, 4), Fraction(1))
WIDTHS = {levels: ORIGINAL_WIDTHS[-levels:] for levels in (2, 3, 4)}
"""Share of channels per level; four are the original's, the shorter lists drop its first entries."""
OFFICIAL_TEMPERATURE, OFFICIAL_STRENGTH, OFFICIAL_START = 3.0, 0.05, 0.25


@dataclass(frozen=True)
class DeeperWeighsMore(Objective):
    """Σ_j j · ℓ_j / (e(e+1)/2) over the e exits: ℓ_e = CE, ℓ_j = CE + γ τ² KL(exit e ‖ exit j)."""

    strength: float
    temperature: float
    detached: bool

    def __call__(self, batch: Batch) -> Tensor:
        """Weigh the exits by their depth; the deepest one teaches."""
        exits = len(batch.logits)
        teacher = batch.logits[exits - 1]
        target = teacher.detach() if self.detached else teacher
        terms = []
        for j, logits in batch.logits.items():
            loss = F.cross_entropy(logits, batch.labels)
            if j < exits - 1:
                loss = loss + self.strength * divergence(target, logits, self.temperature)
            terms.append((j + 1) * loss)
        return torch.stack(terms).sum() / (exits * (exits + 1) / 2)


@method("scalefl")
class ScaleFL(FedAvg):
    """One global early-exit model; deeper exits weigh more and teach the shallow ones.

    Objective with e exits: Σ_j j · (CE_j + γ τ² KL(exit e ‖ exit j)) / (e(e+1)/2). Travels and is averaged: backbone
    and every exit. Nothing stays on the client. With `hetero`, clients carry models cut in depth and width, and every
    entry is the plain mean over those who hold it.
    """

    distils = True

    class Settings(BaseSettings):
        gamma: NonNegativeFloat = Field(0.5, description="γ of the distillation (the published comparison)")
        temperature: PositiveFloat = Field(1.0, description="τ of the distillation (the published comparison)")
        official_kd: bool = Field(
            False, description="distil as the official code: τ = 3, γ = 0.05 / classes, after a quarter of the rounds"
        )
        hetero: bool = Field(False, description="a level per exit, clients assigned by index in equal shares")

    settings: Settings

    @property
    def weighting(self) -> Weighting:
        """Weigh by samples; with levels, all holders of an entry alike."""
        return "uniform" if self.settings.hetero else "sizes"

    def level(self, client: int, population: int, exits: int) -> Level | None:
        """Assign levels by index: the first clients carry the least."""
        if not self.settings.hetero:
            return None
        number = level_of(client, population, exits)
        return Level(number + 1, WIDTHS[exits][number])

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse single-exit networks, and by width those without convolutions."""
        super().check(subnetworks, population)
        refuse_single_exit(self, subnetworks)
        if self.settings.hetero:
            refuse_local_statistics(self, subnetworks)
            for number, width in enumerate(WIDTHS[subnetworks.layout.exits]):
                subnetworks.carve(Level(number + 1, width))

    @property
    def plans_by_total(self) -> bool:
        """Tell that the official code begins to distil after a share of all rounds."""
        return self.settings.official_kd

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train everything on the depth-weighted loss."""
        s = self.settings
        objective: Objective = DeeperWeighsMore(s.gamma, s.temperature, detached=True)
        if s.official_kd:
            active = client.round > OFFICIAL_START * client.schedule.rounds
            strength = OFFICIAL_STRENGTH / client.classes if active else 0.0  # an elementwise mean divides so too
            objective = DeeperWeighsMore(strength, OFFICIAL_TEMPERATURE, detached=False)
        return [client.phase(objective)]
