"""pFedGraph (Ye et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat

from xfed.algorithms.common.matching import project_on_simplex
from xfed.algorithms.common.whole_models import WholeModels, cosines_of, gram
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Use, method
from xfed.protocol.client import Client
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads
from xfed.training.regularisers import Alignment
from xfed.training.trainer import Phase

TARGET = "target."
ALIKE = 0.9  # cosines above count as 1, as in the original code


@method("pfedgraph")
class PFedGraph(WholeModels):
    """Personal models mixed along a graph of who collaborates with whom.

    Row i of the graph: argmin_{x in simplex} α‖x − p‖² − c_iᵀx, c_ij = cos(w_i − w⁰, w_j − w⁰), p the shares of
    samples. Objective of client i: (1/m) Σ_j CE_j ∓ λ ⟨w, r_i⟩ / ‖w‖ from its second participation on, started from
    Σ_j x_ij w_j, with r_i = Σ_j x_ij w_j / ‖w_j‖. Travels: mixture and r_i down, w_i up (collected). Stays on the
    client: w_i. The server keeps every client's mixture and r_i.
    """

    class Settings(BaseSettings):
        alpha: PositiveFloat = Field(0.8, description="α: large mixes by size alone (original: 0.8)")
        lam: NonNegativeFloat = Field(0.01, description="λ of the pull towards r_i (original: 0.01)")
        sign: Literal["minus", "plus"] = Field(
            "minus", description="attract as the paper's equation says, or push away as its code does"
        )
        similarity: Literal["all", "heads"] = Field("all", description="compare whole models, or the exits alone")
        evaluated: Literal["mixture", "trained"] = Field(
            "mixture", description="model that a client is evaluated with: the mixture, or as it trained it"
        )

    settings: Settings

    def model_for(self, server: Server, clients: Sequence[int], use: Use) -> dict[int, Message]:
        """Send the mixture, which is also what a client is evaluated with unless that is its own model."""
        messages = super().model_for(server, clients, use)
        mixed = use == "evaluation" and self.settings.evaluated == "mixture"
        return self.with_mixtures(server, messages) if mixed else messages

    def besides(self, server: Server, cohort: Cohort) -> dict[int, Message]:
        """Send the direction to be pulled to, once there is one."""
        kept = {client: server.kept.get(client) for client in cohort.clients}
        return {c: Message({n: t for n, t in tensors.items() if n.startswith(TARGET)}) for c, tensors in kept.items()}

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train everything, pulled towards the collaborators' direction."""
        objective = self.joint(client)
        target = {n.removeprefix(TARGET): t for n, t in received.tensors.items() if n.startswith(TARGET)}
        if target:
            strength = self.settings.lam if self.settings.sign == "plus" else -self.settings.lam
            objective += Alignment(client.named(client.model(target)), strength)
        return [client.phase(objective)]

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Solve for the graph by projection, mix along it, and note the direction for the next round."""
        self.aggregate_shared(server, uploads)
        models, clients = self.gathered(server, uploads, "participants")
        parts = Parts.MODEL if self.settings.similarity == "all" else Parts.EXITS
        cosines = cosines_of(self.gram(server, models, parts))
        cosines[cosines > ALIKE] = 1.0
        sizes = np.array(uploads.weights, dtype=np.float64)
        graph = project_on_simplex(sizes / sizes.sum() + cosines / (2 * self.settings.alpha))
        squares = sum(np.diag(gram(torch.stack([m[p.key] for m in models]))) for p in self.parts(server))
        starts = self.mixtures(server, graph, models)
        directions = self.mixtures(server, graph / np.sqrt(squares), models)
        for client, start, direction in zip(clients, starts, directions, strict=True):
            server.keep(client, **start, **{TARGET + name: tensor for name, tensor in direction.items()})
