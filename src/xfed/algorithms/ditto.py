"""Ditto (Li et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field, NonNegativeFloat, PositiveInt

from xfed.algorithms.fedavg import FedAvg
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Use, method
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.training.regularisers import Proximal

GLOBAL_STATISTICS = "global_statistics"


@method("ditto")
class Ditto(FedAvg):
    """FedAvg, and beside it a personal model per client that is pulled towards the global one.

    Objectives: Σ_i p_i (1/m) Σ_j CE_j for the global w; (1/m) Σ_j CE_j + (λ/2) ‖v − w^t‖² for the personal v_i.
    Travels and is averaged: w. Stays on the client: v_i (and, with local BatchNorm statistics, those of w). Doubles
    the local compute. v_i is what is evaluated.
    """

    class Settings(BaseSettings):
        lam: NonNegativeFloat = Field(1.0, description="λ of the pull (original scripts: 1, chosen from {0.1, 1, 2})")
        personal_epochs: PositiveInt | None = Field(
            None, description="epochs on the personal model; default: as many as on the global one (original)"
        )

    settings: Settings

    def model_for(self, server: Server, clients: Sequence[int], use: Use) -> dict[int, Message]:
        """Send the global model for training; a client is evaluated with its own."""
        if use == "evaluation":
            return {client: Message() for client in clients}
        return super().model_for(server, clients, use)

    def train(self, client: Client, received: Message) -> Message:
        """Train the global model and, from where it was left, the personal one."""
        common = client.phase(self.joint(client))
        kept = client.state.pop(GLOBAL_STATISTICS, None)
        start = client.model({Parts.STATISTICS.key: kept} if kept is not None else {}, received.tensors)
        trained = client.train(start, [common])
        pull = Proximal(client.named(client.model(received.tensors)), self.settings.lam)
        epochs = self.settings.personal_epochs or common.epochs
        personal = client.train(
            client.model(client.state), [replace(common, objective=common.objective + pull, epochs=epochs)]
        )
        client.state.update(client.pack(personal, Parts.MODEL | Parts.STATISTICS))
        for statistics in client.pack(trained, Parts.STATISTICS & ~self.travelling).values():
            client.state[GLOBAL_STATISTICS] = statistics
        return Message(client.pack(trained, self.travelling), {"samples": client.samples})

    def personal(self, client: Client, received: Message) -> Personal:
        """Evaluate the personal model."""
        state = {name: tensor for name, tensor in client.state.items() if name != GLOBAL_STATISTICS}
        return Personal({}, state)
