"""FedProx (Li et al., 2020)."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat

from xfed.algorithms.fedavg import FedAvg
from xfed.components import BaseSettings
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client
from xfed.protocol.message import Message
from xfed.training.regularisers import Proximal
from xfed.training.trainer import Phase


@method("fedprox")
class FedProx(FedAvg):
    """FedAvg with a pull of the local model towards the received one.

    Objective: (1/m) Σ_j CE_j + (μ/2) ‖w − w^t‖², over backbone and all exits. Travels and is averaged: backbone and
    every exit. Nothing stays on the client.
    """

    class Settings(BaseSettings):
        mu: NonNegativeFloat = Field(
            0.01, description="μ of the squared pull; the original tunes it in {0.001, 0.01, 0.1, 0.5, 1}"
        )

    settings: Settings

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train everything, pulled towards what was received."""
        reference = client.named(client.model(received.tensors))
        return [client.phase(self.joint(client) + Proximal(reference, self.settings.mu))]
