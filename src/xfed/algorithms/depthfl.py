"""DepthFL (Kim et al., 2023), on FedDyn (Acar et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from xfed.algorithms.common.levels import level_of, refuse_local_statistics, refuse_single_exit
from xfed.algorithms.fedavg import FedAvg
from xfed.components import BaseSettings
from xfed.errors import InputError
from xfed.models.parts import Parts
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads, Weighting
from xfed.training.distillation import divergence
from xfed.training.objectives import Batch, Objective
from xfed.training.regularisers import Linear, Proximal
from xfed.training.trainer import Phase

CORRECTION, DRIFT = "correction.", "drift."
RAMP_ROUNDS = 300
ORIGINAL_WEIGHT_DECAY = 1e-3
CLIPPED_AT = 10.0


@dataclass(frozen=True)
class MutualExits(Objective):
    """Σ_j CE_j + strength / (e − 1) · Σ_j Σ_{k ≠ j} KL(exit k, detached ‖ exit j): every exit teaches every other."""

    strength: float
    scale: float

    def __call__(self, batch: Batch) -> Tensor:
        """Sum over the exits; sums, not means, times `scale`."""
        logits = list(batch.logits.values())
        total = torch.stack([F.cross_entropy(z, batch.labels) for z in logits]).sum()
        if len(logits) > 1:
            pairs = [
                divergence(teacher.detach(), student, 1.0)
                for j, student in enumerate(logits)
                for k, teacher in enumerate(logits)
                if k != j
            ]
            total = total + self.strength / (len(logits) - 1) * torch.stack(pairs).sum()
        return self.scale * total


def ramp(round: int, rounds: int) -> float:
    """Give w_t = exp(−5 (1 − min(t, R) / R)²), R = min(300, T): distillation grows with the exits' competence."""
    length = min(RAMP_ROUNDS, rounds)
    return math.exp(-5.0 * (1.0 - min(round, length) / length) ** 2)


@method("depthfl")
class DepthFL(FedAvg):
    """One global early-exit model whose exits teach each other, on FedDyn's corrected averaging.

    Objective with e exits: Σ_j CE_j + w_t/(e−1) Σ_j Σ_{k≠j} KL(exit k ‖ exit j) − ⟨g_i, θ⟩ + (α/2) ‖θ − θ^t‖². Travels:
    backbone and every exit, averaged over their holders and corrected by the server's drift H. Stays on the client:
    FedDyn's g_i. With `hetero`, clients carry a prefix of the stages.
    """

    distils = True

    class Settings(BaseSettings):
        feddyn: bool = Field(True, description="FedDyn's corrections; off: plain averages (the paper's FedAvg row)")
        alpha: PositiveFloat = Field(0.1, description="α of FedDyn (original: 0.1)")
        kd: NonNegativeFloat = Field(1.0, description="factor on the ramp w_t of mutual distillation")
        optimiser: Literal["original", "common"] = Field(
            "original",
            description="no momentum, decay 1e-3, summed losses; or the common one, losses over m, clipped at 10",
        )
        hetero: bool = Field(False, description="a level per exit, clients assigned by index in equal shares")

    settings: Settings

    @property
    def plans_by_total(self) -> bool:
        """Tell that distillation grows over all rounds."""
        return self.settings.kd > 0

    @property
    def weighting(self) -> Weighting:
        """All holders of an entry weigh alike."""
        return "uniform"

    def level(self, client: int, population: int, exits: int) -> Level | None:
        """Assign depths by index: the first clients carry the least."""
        return Level(level_of(client, population, exits) + 1) if self.settings.hetero else None

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse single-exit networks."""
        super().check(subnetworks, population)
        if self.server_optimizer and self.settings.feddyn:
            raise InputError(
                f"server_optimizer is {self.server_optimizer.kind!r}, but FedDyn corrects averages in its own way; "
                "allowed: average, or depthfl.feddyn false"
            )
        refuse_single_exit(self, subnetworks)
        if self.settings.hetero:
            refuse_local_statistics(self, subnetworks)

    # On the client

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train everything on mutual distillation and, with FedDyn, its two corrections."""
        s = self.settings
        common = s.optimiser == "common"
        strength = s.kd * ramp(client.round, client.schedule.rounds)
        objective: Objective = MutualExits(strength, 1.0 / client.exits if common else 1.0)
        if s.feddyn:
            objective += Linear(client.named(client.model(self._zeros(client), self._corrections(client))))
            objective += Proximal(client.named(client.model(received.tensors)), s.alpha)
        phase = client.phase(objective)
        if common:
            return [replace(phase, clip=CLIPPED_AT)]
        return [replace(phase, momentum=0.0, weight_decay=ORIGINAL_WEIGHT_DECAY)]

    def train(self, client: Client, received: Message) -> Message:
        """Train, then g_i ← g_i − α (θ_i − θ^t), over what the client carries."""
        upload = super().train(client, received)
        if self.settings.feddyn:
            before = {**self._zeros(client), **self._corrections(client)}
            for name, correction in before.items():
                moved = upload.tensors[name] - received.tensors[name]
                client.state[CORRECTION + name] = correction - self.settings.alpha * moved
        return upload

    @staticmethod
    def _zeros(client: Client) -> dict[str, Tensor]:
        layout = client.trainer.layout
        return {part.key: torch.zeros(layout.count(part)) for part in Parts.MODEL if layout.count(part)}

    @staticmethod
    def _corrections(client: Client) -> dict[str, Tensor]:
        return {n.removeprefix(CORRECTION): t for n, t in client.state.items() if n.startswith(CORRECTION)}

    # On the server

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """θ̄ = mean over holders; H ← H − α (q/n) (θ̄ − θ^t); θ^{t+1} = θ̄ − H/α; statistics are θ̄ alone."""
        before = server.pack(Parts.MODEL)
        super().aggregate(server, uploads)
        if self.settings.feddyn:
            server.layout.unpack(server.model, self._corrected(server, uploads, before))

    def _corrected(self, server: Server, uploads: Uploads, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
        corrected = {}
        for name, mean in server.pack(Parts.MODEL).items():
            held = uploads.held(name)
            drift = server.tensors.get(DRIFT + name, torch.zeros_like(mean))
            share = (held / server.population).float()
            drift = drift - self.settings.alpha * share * (mean - before[name])
            server.tensors[DRIFT + name] = drift
            corrected[name] = torch.where(held > 0, mean - drift / self.settings.alpha, mean)
        return corrected
