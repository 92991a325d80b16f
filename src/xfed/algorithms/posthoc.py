"""Shallow exits trained after the federation, by each client alone: the paper's naive way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.errors import InputError
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message
from xfed.training.objectives import Batch, Objective
from xfed.training.trainer import Phase


@dataclass(frozen=True)
class EachExit(Objective):
    """Cross-entropy of every active exit with weight 1: what a single-exit network has."""

    def __call__(self, batch: Batch) -> Tensor:
        """Add up over the active exits."""
        return torch.stack([F.cross_entropy(logits, batch.labels) for logits in batch.logits.values()]).sum()


@method("posthoc")
class PostHoc(FedPer):
    """FedPer of a single-exit network; at the end each client trains shallow exits on the frozen result.

    Objective: CE of the last exit during the rounds; before the final evaluation, Σ_{j<m} CE_j over shallow exits
    alone. Travels and is averaged: the backbone. Stays on the client: the last exit. The "local" bar of the paper's
    motivation figure. BatchNorm statistics move while exits train, and are evaluated as these exits knew them.
    """

    class Settings(BaseSettings):
        shallow_epochs: PositiveInt = Field(20, description="epochs on the shallow exits before the final evaluation")
        shallow_rate: PositiveFloat = Field(0.05, description="learning rate of these epochs")

    settings: Settings

    @property
    def tuned_at_the_end(self) -> bool:
        """Tell that shallow exits are trained at the very end."""
        return True

    @property
    def stays(self) -> Parts:
        """Shallow exits are as initialised until the end, so they are not kept."""
        return super().stays & ~Parts.SHALLOW_EXITS

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse local distillation: there is one exit to train while the rounds go on."""
        super().check(subnetworks, population)
        if self.local_kd != "off":
            raise InputError(f"local_kd is {self.local_kd!r}: method 'posthoc' trains one exit at a time; allowed: off")

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train the backbone and the last exit, as a single-exit network."""
        return [client.phase(EachExit(), exits=[client.exits - 1])]

    def personal(self, client: Client, received: Message) -> Personal:
        """Evaluate what the federation made; at the very end, with shallow exits trained on it."""
        personal = super().personal(client, received)
        shallow: Sequence[int] = range(client.exits - 1)
        if not (client.final and shallow):
            return personal
        phase = client.phase(EachExit(), exits=shallow, parts=Parts.SHALLOW_EXITS)
        phase = replace(phase, epochs=self.settings.shallow_epochs, rate=self.settings.shallow_rate)
        tuned = client.tune(client.model(personal.shared, personal.own), [phase])
        return personal.having(client.pack(tuned, Parts.SHALLOW_EXITS | Parts.STATISTICS))
