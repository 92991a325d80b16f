"""The shape of a method. The defaults here are a complete one: average what travels, keep what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from torch import Tensor

from xfed.components import Component, Registry
from xfed.errors import InputError
from xfed.models.parts import Parts
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.client import Client, Personal, overlay
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.optimizer import ServerOptimizer
from xfed.protocol.server import Server
from xfed.protocol.uploads import Holders, Uploads, Weighting
from xfed.training.distillation import Distillation, LiveTeacher
from xfed.training.frozen import is_one_linear_layer
from xfed.training.objectives import JointExits, Objective
from xfed.training.trainer import Phase
from xfed_runtime.answers import Answer

Statistics = Literal["local", "aggregate"]
LocalDistillation = Literal["off", "sum", "mean"]
Use = Literal["training", "evaluation"]
"""What a client wants a model for; export takes the one for evaluation."""
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
    refits: ClassVar[float] = 0.0
    """ρ of refitting personal exits where a run says nothing else; 0: they stay as they were trained."""
    answers: ClassVar[Answer] = "own"
    """What exits answer with where a run says nothing else."""

    def __init__(
        self,
        settings: object = None,
        statistics: Statistics = "local",
        local_kd: LocalDistillation = "off",
        server_optimizer: ServerOptimizer | None = None,
        refit: float | None = None,
    ) -> None:
        super().__init__(settings)
        self.statistics = statistics
        self.local_kd = local_kd
        self.server_optimizer = server_optimizer
        self.refit = self.refits if refit is None else refit

    # What a method declares

    @property
    def tuned_at_the_end(self) -> bool:
        """Tell whether the final evaluation is of fine-tuned copies, so that earlier ones do not compare with it."""
        return False

    @property
    def plans_by_total(self) -> bool:
        """Tell whether a round depends on how many there are in all, so that a run extended is not a longer run."""
        return False

    @property
    def everyone(self) -> bool:
        """Tell whether all clients take part in every round, whatever share of them is sampled."""
        return False

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

    @property
    def personal_exits(self) -> Parts:
        """The exits that are a client's own, which may be refitted to a newer backbone."""
        return self.stays & Parts.EXITS

    def level(self, client: int, population: int, exits: int) -> Level | None:
        """Tell how much of the network a client carries; nothing: all of it. Known to the server too."""
        return None

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse what this method cannot train, before any work starts."""
        if self.server_optimizer and not self.averaged & Parts.MODEL:
            raise InputError(
                f"server_optimizer is {self.server_optimizer.kind!r}, but method {self.name!r} averages nothing; "
                "allowed: average"
            )
        if self.refit and not self.personal_exits:
            raise InputError(f"refit is {self.refit:g}, but method {self.name!r} has no personal exits; allowed: 0")
        if self.refit and not all(map(is_one_linear_layer, subnetworks.network.exits)):
            raise InputError(f"refit is {self.refit:g}, which needs exits that are one linear layer; allowed: 0")

    # On the server

    def model_for(self, server: Server, clients: Sequence[int], use: Use) -> dict[int, Message]:
        """Give the model that each client gets, to train from or to be evaluated and exported with.

        Always the full one: where a client carries only a part of it, the loop cuts it to that.
        """
        shared = server.pack(self.averaged)
        return {client: Message(shared) for client in clients}

    def besides(self, server: Server, cohort: Cohort) -> dict[int, Message]:
        """Give what participants need for training besides the model; a client without an entry needs nothing."""
        return {}

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Take a round's uploads into the server's state."""
        averages = uploads.averages(lambda: server.pack(self.averaged))
        if self.server_optimizer:
            trained = {name: tensor for name, tensor in averages.items() if name != Parts.STATISTICS.key}
            averages |= self.server_optimizer.step(server.tensors, server.pack(self.averaged), trained, uploads.held)
        server.layout.unpack(server.model, averages)

    def expect(self, server: Server, sent: Mapping[int, Message]) -> Uploads:
        """Open what takes a round's uploads in, as declared."""
        population, exits = server.population, server.layout.exits

        def indices(client: int) -> Mapping[str, Tensor]:
            level = self.level(client, population, exits)
            assert level is not None, "either all clients have a level or none"
            return server.subnetworks.indices(level)

        sizes = {part.key: n for part in self.averaged | self.collected if (n := server.layout.count(part))}
        leveled = self.level(0, population, exits) is not None
        holders = Holders(indices) if leveled else None
        return Uploads(self.averaged, self.collected, self.weighting, sizes, self.collected_tensors, holders, sent)

    # On the client

    def joint(self, client: Client) -> Objective:
        """Give the loss every method starts from: (1/m) Σ_j CE_j, with local distillation where it is asked for.

        Local distillation adds Σ_{j<m} τ² KL(own last exit ‖ exit j) with τ = 2, live and detached.
        """
        last = client.exits - 1
        if self.local_kd == "off" or last == 0:
            return JointExits()
        strength = 1.0 if self.local_kd == "sum" else 1.0 / client.exits
        return JointExits() + Distillation(LiveTeacher(last), range(last), strength, LOCAL_TEMPERATURE)

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Describe a client's local training."""
        return [client.phase(self.joint(client))]

    def train(self, client: Client, received: Message) -> Message:
        """Train on the client; keep what is its own, give what travels."""
        model = client.model(client.state, received.tensors)
        trained = client.train(model, self.phases(client, received))
        client.state.update(client.pack(trained, self.stays))
        return Message(client.pack(trained, self.travelling), {"samples": client.samples})

    def personal(self, client: Client, received: Message) -> Personal:
        """Give the client's model for evaluation and export."""
        return overlay(received, client.state, self.averaged)

    def evaluated(self, client: Client, received: Message) -> Personal:
        """Give the personal model as it is evaluated and exported: with exits refitted where that is asked for."""
        personal = self.personal(client, received)
        last = client.exits - 1
        exits = list(range(last)) if Parts.SHALLOW_EXITS in self.personal_exits else []
        exits += [last] if Parts.LAST_EXIT in self.personal_exits else []
        if not (self.refit and exits):
            return personal
        model = client.refit(client.model(personal.shared, personal.own), exits, self.refit)
        return personal.having(client.pack(model, self.personal_exits))


methods: Registry[Algorithm] = Registry("method", Algorithm, "xfed.algorithms")
method = methods.register
