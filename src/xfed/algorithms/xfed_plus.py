"""X-FED+: X-FED's messages, with exits that always train, know their client's classes and fit their backbone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, model_validator
from torch import Tensor, nn

from xfed.algorithms.common.selection import ScheduleName
from xfed.algorithms.xfed import XFed
from xfed.errors import InputError
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.algorithm import Use, method
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads
from xfed.training.distillation import Teacher
from xfed.training.frozen import is_one_linear_layer
from xfed.training.objectives import Batch, Objective, OnRepeats
from xfed.training.trainer import Phase

NEWEST = "newest"
PSEUDO_SAMPLES = 0.1
"""Added to each class's count: a class that a client has never seen stays possible."""


@dataclass(frozen=True)
class Seen(Objective):
    """A term that sees other logits: those of exits that are not attached from detached features, all plus a prior."""

    term: Objective
    attached: Collection[int]
    prior: Tensor

    def __call__(self, batch: Batch) -> Tensor:
        """Compute the term on what it sees."""
        logits = {}
        for j, own in batch.logits.items():
            if j not in self.attached:
                head: nn.Linear = batch.network.exits[j].linear  # type: ignore[assignment]
                own = head(batch.features[j].detach())
            logits[j] = own + self.prior
        return self.term(replace(batch, logits=logits))


@dataclass(frozen=True)
class Informed:
    """A teacher that knows which classes its pupil has."""

    teacher: Teacher
    prior: Tensor

    def __call__(self, batch: Batch) -> Tensor:
        """Add the prior to the teacher's logits."""
        return self.teacher(batch) + self.prior


@method("xfed-plus")
class XFedPlus(XFed):
    """X-FED's messages, put to better use; each addition is a setting.

    All losses see z_j + γ log p_i(c), p_i(c) being client i's share of class c: what travels learns to tell classes
    apart, and what a client's classes are is added to its biases when it is evaluated. All exits train from the first
    round on (`schedule`); under another schedule, those that are not selected train by cross-entropy on detached
    features, which the backbone does not notice (`unselected`). The teacher, which is the received model, teaches from
    a round's second epoch on, when samples come again (`kd_epochs`). Every client gets a mixture of the newest round's
    last exits, not of a round long ago (`teachers`). Before evaluation, shallow exits are refitted to the newest
    backbone (`refit`), and exits answer with running means (`answers`). Travels and stays: as X-FED.
    """

    refits = 0.03
    answers = "running"

    class Settings(XFed.Settings):
        schedule: ScheduleName = Field(
            "fixed", description="share R(t) of student exits that train in round t; fixed: all of them"
        )
        teachers: Literal["participants", "all", "latest"] = Field(  # type: ignore[assignment]
            "latest", description="mix the last exits of the newest round, of this round's clients, or of all so far"
        )
        mix: Literal["end", "start"] = Field("start", description="mix teachers when a round ends, or when one starts")
        unselected: Literal["detached", "idle"] = Field(
            "detached", description="exits that are not selected train on detached features, or not at all (X-FED)"
        )
        kd_epochs: Literal["repeats", "all"] = Field(
            "repeats", description="distil from a round's second epoch on, when samples come again, or in all (X-FED)"
        )
        gamma: NonNegativeFloat = Field(1.0, description="γ: strength of the client's class prior; 0: none (X-FED)")

        @model_validator(mode="after")
        def _some_exits_wait(self) -> Self:
            if self.unselected == "idle" and self.schedule == "fixed":
                raise ValueError(
                    "xfed-plus.unselected goes with a schedule that lets exits wait; under 'fixed' all train"
                )
            return self

    settings: Settings

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse exits whose biases the prior cannot be added to, or that cannot train on features alone."""
        super().check(subnetworks, population)
        if all(map(is_one_linear_layer, subnetworks.network.exits)):
            return
        if self.settings.gamma:
            raise InputError(
                f"xfed-plus.gamma is {self.settings.gamma:g}, which needs exits that are one linear layer; allowed: 0"
            )
        if self.settings.unselected == "detached" and self.settings.schedule != "fixed":
            raise InputError(
                f"xfed-plus.unselected is 'detached' and xfed-plus.schedule {self.settings.schedule!r}, which needs "
                "exits that are one linear layer; allowed: idle, or schedule fixed"
            )

    # On the server

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Remember whose uploads these are, and take them in as X-FED does."""
        if self.settings.teachers == "latest":
            server.tensors[NEWEST] = torch.tensor(uploads.clients)
        super().aggregate(server, uploads)

    def _teachers(self, server: Server, clients: Sequence[int], use: Use) -> list[int]:
        if self.settings.teachers != "latest":
            return super()._teachers(server, clients, use)
        return server.tensors[NEWEST].tolist() if NEWEST in server.tensors else []

    # On the client

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train as X-FED does, and the other exits apart."""
        [phase] = super().phases(client, received)
        selected = phase.exits
        assert selected is not None
        term = Seen(phase.objective, selected, self._prior(client))
        return [replace(phase, objective=term, exits=None if self.settings.unselected == "detached" else selected)]

    def _distillation(self, client: Client, received: Message, students: Sequence[int]) -> Objective | None:
        if self.settings.kd_epochs == "all":
            return super()._distillation(client, received, students)
        taught = super()._distillation(client, received, students) if client.schedule.epochs > 1 else None
        return None if taught is None else OnRepeats(taught)

    def _teacher(self, client: Client, received: Message) -> Teacher:
        teacher = super()._teacher(client, received)
        return teacher if self.settings.teacher == "live" else Informed(teacher, self._prior(client))

    def personal(self, client: Client, received: Message) -> Personal:
        """Add the client's prior to the biases of all exits; a refit starts from there."""
        personal = super().personal(client, received)
        model = client.model(personal.shared, personal.own)
        for name, tensor in client.trainer.layout.views(model).items():
            if name.startswith("exits.") and name.endswith(".linear.bias"):
                tensor += self._prior(client).to(tensor.device)
        return personal.having(client.pack(model, Parts.EXITS))

    def _prior(self, client: Client) -> Tensor:
        """Give γ log p(c) of the client's training samples."""
        counts = client.class_counts() + PSEUDO_SAMPLES
        return self.settings.gamma * (counts / counts.sum()).log().to(client.trainer.device)
