"""The shape of a method. The defaults here are a complete one: average what travels, keep what does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from xfed.components import Component, Registry
from xfed.models.parts import Parts
from xfed.protocol.client import Client, Personal, overlay
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads, Weighting
from xfed.training.objectives import JointExits
from xfed.training.trainer import Phase

Statistics = Literal["local", "aggregate"]


class Algorithm(Component):
    """A federated method: its settings and nothing else; all state lives in `server` and `client.state`.

    A method declares which parts travel between server and client and which of those are collected side by
    side instead of averaged. What does not travel is the client's own and is kept in its state.
    """

    travels: ClassVar[Parts] = Parts.NONE
    collected: ClassVar[Parts] = Parts.NONE
    weighting: ClassVar[Weighting] = "sizes"

    def __init__(self, settings: object = None, statistics: Statistics = "local") -> None:
        super().__init__(settings)
        self.statistics = statistics

    @property
    def travelling(self) -> Parts:
        """What really travels: with aggregated BatchNorm statistics, these go wherever the backbone goes."""
        aggregate = self.statistics == "aggregate" and Parts.BACKBONE in self.travels
        return self.travels | Parts.STATISTICS if aggregate else self.travels

    @property
    def averaged(self) -> Parts:
        """What the server averages."""
        return self.travelling & ~self.collected

    def start(self, server: Server) -> None:
        """Prepare the server's state before the first round."""

    def deliver(self, server: Server, clients: Sequence[int]) -> dict[int, Message]:
        """Give what each client receives whenever it meets the server, evaluation and export included."""
        shared = server.pack(self.averaged)
        return {client: Message(shared) for client in clients}

    def download(self, server: Server, cohort: Cohort) -> dict[int, Message]:
        """Give what each participant receives for training: `deliver`, and what training needs besides."""
        messages = self.deliver(server, cohort.clients)
        return {client: messages[client].having(round=cohort.round) for client in cohort.clients}

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Describe a client's local training."""
        return [client.phase(JointExits())]

    def train(self, client: Client, received: Message) -> Message:
        """Train on the client; keep what is its own, give what travels."""
        model = client.model(client.state, received.tensors)
        trained = client.train(model, self.phases(client, received))
        client.state.update(client.pack(trained, (Parts.MODEL | Parts.STATISTICS) & ~self.travelling))
        return Message(client.pack(trained, self.travelling), {"samples": client.samples})

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Take a round's uploads into the server's state."""
        server.layout.unpack(server.model, uploads.averages())

    def personal(self, client: Client, received: Message) -> Personal:
        """Give the client's model for evaluation and export."""
        return overlay(received, client.state, self.averaged)


methods: Registry[Algorithm] = Registry("method", Algorithm, "xfed.algorithms")
method = methods.register
