"""X-FED: conflict-aware cross-client federated exit distillation (Section 4 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor

from xfed.algorithms.common.matching import Matrix, cosines, match_teachers
from xfed.algorithms.common.selection import SCHEDULES, ScheduleName, select_students
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Use, method
from xfed.protocol.client import Client
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads
from xfed.training.distillation import CachedTeacher, Distillation, LiveTeacher, SteppingTeacher, Teacher
from xfed.training.objectives import JointExits, Objective
from xfed.training.trainer import Phase

LAST = Parts.LAST_EXIT.key

LITERAL: dict[str, Any] = {
    "similarity": "parameters",
    "teachers": "all",
    "mix": "start",
    "temperature": 1.0,
    "kd_on_last": True,
    "evaluated": "trained",
}
"""What the `literal` profile, the paper's text word for word, sets otherwise than `recommended`."""


@method("xfed")
class XFed(FedPer):
    """Personal exits that join training progressively and learn from last exits of similar clients.

    Objective of client i: Σ_{j ∈ S_i} CE_j / m + λ Σ_{j ∈ S_i, j < m} τ² KL(teacher_i ‖ exit j), where S_i is
    chosen by the server and teacher_i = (φ, h̄_i) carries the mixture h̄_i = Σ_j k_ij h_jm of last exits.
    Travels: the backbone φ (averaged) and the last exit (collected and mixed). Stays on the client: the shallow
    exits. The server keeps each client's last exit, its mixture and its last update.
    """

    travels = Parts.BACKBONE | Parts.LAST_EXIT
    collected = Parts.LAST_EXIT
    distils = True

    class Settings(BaseSettings):
        profile: Literal["recommended", "literal"] = Field(
            "recommended",
            description="defaults of all settings below: recommended, or the paper word for word",
        )
        schedule: ScheduleName = Field("linear", description="share R(t) of student exits that train in round t")
        mu: PositiveFloat = Field(0.6, description="μ: large mixes all teachers alike, tiny (1e-6) means no matching")
        lam: NonNegativeFloat = Field(1.0, description="λ: strength of distillation")
        temperature: PositiveFloat = Field(2.0, description="τ of distillation, which is scaled by τ² (literal: 1)")
        teacher: Literal["frozen", "live"] = Field(
            "frozen",
            description="teach from the received model, or from the client's own last exit as it trains",
        )
        teachers: Literal["participants", "all"] = Field(
            "participants",
            description="mix the last exits of this round's clients, or of all seen so far (literal)",
        )
        mix: Literal["end", "start"] = Field(
            "end", description="mix teachers when a round ends, or when the next one starts (literal)"
        )
        similarity: Literal["update", "parameters"] = Field(
            "update",
            description="compare clients by the last change of their last exit, or by the exit (literal)",
        )
        kd_weight: Literal["sum", "mean"] = Field("sum", description="add the students' divergences, or divide by m")
        kd_on_last: bool = Field(False, description="distil into the last exit too (literal: yes)")
        evaluated: Literal["mixed", "trained"] = Field(
            "mixed",
            description="last exit that a client is evaluated with: mixture, or as it trained it (literal)",
        )

        @model_validator(mode="before")
        @classmethod
        def _profile(cls, values: Any) -> Any:
            if not (isinstance(values, dict) and values.get("profile") == "literal"):
                return values
            if all(name in values and values[name] == cls.model_fields[name].default for name in LITERAL):
                raise ValueError(
                    "profile is 'literal', but all that it stands for is given as in 'recommended' "
                    f"({', '.join(LITERAL)}); leave these out"
                )
            return {**LITERAL, **values}

    settings: Settings

    @property
    def plans_by_total(self) -> bool:
        """Tell that exits join over the first half of all rounds, unless all train from the first one on."""
        return self.settings.schedule != "fixed"

    # On the server

    def model_for(self, server: Server, clients: Sequence[int], use: Use) -> dict[int, Message]:
        """Send the backbone and a last exit: the mixture to train from, or the one the client is evaluated with."""
        messages = super().model_for(server, clients, use)
        exits = self._last_exits(server, clients, use)
        return {client: messages[client].having({LAST: row}) for client, row in zip(clients, exits, strict=True)}

    def besides(self, server: Server, cohort: Cohort) -> dict[int, Message]:
        """Send which exits train this round: S_i = {1..k} ∪ {m}, so that k says it all."""
        clients = cohort.clients
        directions = self._directions(server, clients)
        share = SCHEDULES[self.settings.schedule](cohort.round, cohort.rounds)
        similarity = cosines(directions, directions, clients, clients)
        students = select_students(similarity, share, server.layout.exits, server.ties(cohort.round))
        server.note("cohort", list(clients))
        server.note("similarity", similarity)
        server.note("students", [[j in chosen for j in range(server.layout.exits)] for chosen in students])
        return {client: Message(values={"students": len(s) - 1}) for client, s in zip(clients, students, strict=True)}

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Average the backbone; keep last exits and their changes; mix teachers from that snapshot."""
        super().aggregate(server, uploads)
        clients = uploads.clients
        for client in clients:
            before, after = uploads.sent(client).tensors[LAST], uploads.of(client).tensors[LAST]
            server.keep(client, trained=after, update=after - before)
        sent = torch.stack([uploads.sent(client).tensors[LAST] for client in clients]).double()
        server.note("distances", torch.cdist(sent, sent, compute_mode="donot_use_mm_for_euclid_dist").square().numpy())
        if self.settings.mix == "end":
            mixtures = self._mixture(server, clients, self._teachers(server, clients, "training"), noted=True)
            for client, row in zip(clients, mixtures, strict=True):
                server.keep(client, mixed=row)

    def _last_exits(self, server: Server, clients: Sequence[int], use: Use) -> Tensor:
        if use == "evaluation" and self.settings.evaluated == "trained":
            return self._trained(server, clients)
        if self.settings.mix == "end":
            return torch.stack([server.kept_or_initial(client, Parts.LAST_EXIT, "mixed") for client in clients])
        return self._mixture(server, clients, self._teachers(server, clients, use), noted=use == "training")

    def _teachers(self, server: Server, clients: Sequence[int], use: Use) -> list[int]:
        """Choose whose last exits are mixed."""
        if self.settings.teachers == "all" or use == "evaluation":
            return server.kept.known()
        return [client for client in clients if server.kept.get(client)]

    def _mixture(self, server: Server, clients: Sequence[int], teachers: Sequence[int], noted: bool = False) -> Tensor:
        """Compute h̄_i = Σ_j k_ij h_jm for each client i over the teachers j; without teachers, the initial exit."""
        if not teachers:
            return self._trained(server, clients)
        theirs = self._directions(server, teachers)
        ours = theirs if list(clients) == list(teachers) else self._directions(server, clients)
        weights = match_teachers(cosines(ours, theirs, clients, teachers), self.settings.mu)
        if noted:
            server.note("teacher_weights", weights)
            server.note("teacher_students", list(clients))
            server.note("teachers", list(teachers))
        return torch.from_numpy(weights).float() @ self._trained(server, teachers)

    def _trained(self, server: Server, clients: Sequence[int]) -> Tensor:
        return torch.stack([server.kept_or_initial(client, Parts.LAST_EXIT, "trained") for client in clients])

    def _directions(self, server: Server, clients: Sequence[int]) -> Matrix:
        """Give the vectors whose cosines say how alike clients are; zero where a client has none yet."""
        if self.settings.similarity == "parameters":
            rows = self._trained(server, clients)
        else:
            none = torch.zeros(server.layout.count(Parts.LAST_EXIT))
            rows = torch.stack([server.kept.get(client).get("update", none) for client in clients])
        return np.asarray(rows.numpy(), dtype=np.float64)

    # On the client

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train the backbone and the selected exits; the students among them also learn from the teacher."""
        shallow = received.values["students"]
        assert isinstance(shallow, int)
        selected = [*range(shallow), client.exits - 1]
        students = [j for j in selected if self.settings.kd_on_last or j < client.exits - 1]
        objective: Objective = JointExits()
        if (taught := self._distillation(client, received, students)) is not None:
            objective += taught
        return [client.phase(objective, exits=selected)]

    def _distillation(self, client: Client, received: Message, students: Sequence[int]) -> Objective | None:
        """Give the students' term; nothing where nobody teaches, so that no teacher is computed either."""
        if not (students and self.settings.lam):
            return None
        strength = self.settings.lam / (client.exits if self.settings.kd_weight == "mean" else 1)
        return Distillation(self._teacher(client, received), students, strength, self.settings.temperature)

    def _teacher(self, client: Client, received: Message) -> Teacher:
        last = client.exits - 1
        if self.settings.teacher == "live":
            return LiveTeacher(last)
        model = client.model(client.state, received.tensors)
        trainer = client.trainer
        stale = bool(trainer.layout.count(Parts.STATISTICS)) and self.statistics == "local"
        if stale or trainer.augmentation is not None:  # the teacher must see what the students see
            copied = trainer.frozen_copy(model, by_batch=stale)
            return SteppingTeacher(copied, last, trainer.costs.forward([last]), client.meter)
        return CachedTeacher(client.outputs(model, [last]).logits[last])
