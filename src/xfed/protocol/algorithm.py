"""The shape of a method. The defaults here are a complete one: average what travels, keep what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from torch import Tensor

from xfed.components import Component, Registry
from xfed.models.parts import Parts
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.client import Client, Personal, overlay
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Holders, Uploads, Weighting
from xfed.training.distillation import Distillation, LiveTeacher
from xfed.training.objectives import JointExits, Objective
from xfed.training.trainer import Phase

Statistics = Literal["local", "aggregate"]
LocalDistillation = Literal["off", "sum", "mean"]
LOCAL_TEMPERATURE = 2.0


class Algorithm(Component):
    """A federated method: its settings and nothing else; all state lives in `server` and `client.state`.

    A method declares which parts travel between server and client and which of those are collected side by
    side instead of averaged. What does not travel is the client's own and is kept in its state.
    """

    travels: ClassVar[Parts] = Parts.NONE
    collected: ClassVar[Parts] = Parts.NONE
    collected_tensors: ClassVar[tuple[str, ...]] = ()
    """Names of tensors (up to a dot) that are no part of a model and come up beside it, collected too."""
    distils: ClassVar[bool] = False
    """The method distils in a way of its own, so local distillation is not for it."""
    tuned_at_the_end: ClassVar[bool] = False
    """The final evaluation is of fine-tuned copies, so earlier ones do not compare with it."""

    def __init__(
        self, settings: object = None, statistics: Statistics = "local", local_kd: LocalDistillation = "off"
    ) -> None:
        super().__init__(settings)
        self.statistics = statistics
        self.local_kd = local_kd

    @property
    def weighting(self) -> Weighting:
        """How averages weigh clients: by their numbers of samples, or all alike."""
        return "sizes"

    @property
    def travelling(self) -> Parts:
        """What really travels: with aggregated BatchNorm statistics, these go wherever the backbone goes."""
        aggregate = self.statistics == "aggregate" and Parts.BACKBONE in self.travels
        return self.travels | Parts.STATISTICS if aggregate else self.travels

    @property
    def averaged(self) -> Parts:
        """What the server averages."""
        return self.travelling & ~self.collected

    @property
    def stays(self) -> Parts:
        """What a client keeps between rounds: everything that does not travel."""
        return (Parts.MODEL | Parts.STATISTICS) & ~self.travelling

    def joint(self, client: Client) -> Objective:
        """Give the loss every method starts from: (1/m) Σ_j CE_j, with local distillation where it is asked for.

        Local distillation adds Σ_{j<m} τ² KL(own last exit ‖ exit j) with τ = 2, live and detached (spec 5.4).
        """
        last = client.exits - 1
        if self.local_kd == "off" or last == 0:
            return JointExits()
        strength = 1.0 if self.local_kd == "sum" else 1.0 / client.exits
        return JointExits() + Distillation(LiveTeacher(last), range(last), strength, LOCAL_TEMPERATURE)

    def level(self, client: int, population: int, exits: int) -> Level | None:
        """Tell how much of the network a client carries; nothing: all of it. Known to the server too."""
        return None

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse a network that this method cannot train, before any work starts."""

    def start(self, server: Server) -> None:
        """Prepare the server's state before the first round."""

    def deliver(self, server: Server, clients: Sequence[int]) -> dict[int, Message]:
        """Give what each client receives whenever it meets the server, evaluation and export included."""
        shared = server.pack(self.averaged)
        return {client: Message(shared) for client in clients}

    def download(self, server: Server, cohort: Cohort) -> dict[int, Message]:
        """Give what each participant receives for training: `deliver`, and what training needs besides."""
        messages = self.outgoing(server, cohort.clients)
        return {client: messages[client].having(round=cohort.round) for client in cohort.clients}

    def outgoing(self, server: Server, clients: Sequence[int]) -> dict[int, Message]:
        """Give the model that participants train from: what is also evaluated, cut to what each client carries."""
        messages = self.deliver(server, clients)
        for client in clients:
            level = self.level(client, server.population, server.layout.exits)
            if level is not None:
                cut = server.subnetworks.cut(dict(messages[client].tensors), level)
                messages[client] = Message(cut, messages[client].values)
        return messages

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Describe a client's local training."""
        return [client.phase(self.joint(client))]

    def train(self, client: Client, received: Message) -> Message:
        """Train on the client; keep what is its own, give what travels."""
        model = client.model(client.state, received.tensors)
        trained = client.train(model, self.phases(client, received))
        client.state.update(client.pack(trained, self.stays))
        return Message(client.pack(trained, self.travelling), {"samples": client.samples})

    def expect(self, server: Server) -> Uploads:
        """Open what takes a round's uploads in, as declared."""
        population, exits = server.population, server.layout.exits

        def places(client: int) -> Mapping[str, Tensor]:
            level = self.level(client, population, exits)
            assert level is not None, "either all clients have a level or none"
            return server.subnetworks.places(level)

        sizes = {part.key: server.layout.count(part) for part in self.averaged}
        leveled = self.level(0, population, exits) is not None
        holders = Holders(sizes, places) if leveled else None
        return Uploads(self.averaged, self.collected, self.weighting, self.collected_tensors, holders)

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Take a round's uploads into the server's state."""
        server.layout.unpack(server.model, uploads.averages(lambda: server.pack(self.averaged)))

    def personal(self, client: Client, received: Message) -> Personal:
        """Give the client's model for evaluation and export."""
        return overlay(received, client.state, self.averaged)


methods: Registry[Algorithm] = Registry("method", Algorithm, "xfed.algorithms")
method = methods.register
