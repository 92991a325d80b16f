"""FedAMP (Huang et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from xfed.algorithms.common.matching import Matrix
from xfed.algorithms.common.whole_models import WholeModels, cosines_of
from xfed.components import BaseSettings
from xfed.protocol.algorithm import method
from xfed.protocol.client import Client
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads
from xfed.training.regularisers import Proximal
from xfed.training.trainer import Phase


def heuristic_attention(cosines: Matrix, sigma: float, own: float) -> Matrix:
    """Give ξ: `own` on the diagonal, the rest shared out by softmax(σ · cosine) over the others."""
    size = len(cosines)
    if size == 1:
        return np.ones((1, 1))
    others = np.where(np.eye(size, dtype=bool), -np.inf, cosines)
    scores = np.exp(sigma * (others - others.max(axis=1, keepdims=True)))
    weights: Matrix = (1.0 - own) * scores / scores.sum(axis=1, keepdims=True)
    np.fill_diagonal(weights, own)
    return weights


def exact_attention(squared_distances: Matrix, sigma: float, alpha: float) -> Matrix:
    """Give ξ_ij = α exp(−d_ij / σ) / σ for j ≠ i and ξ_ii = 1 − Σ_j ξ_ij, scaled down where that would be below 0."""
    weights: Matrix = alpha * np.exp(-squared_distances / sigma) / sigma
    np.fill_diagonal(weights, 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return weights


@method("fedamp")
class FedAMP(WholeModels):
    """Personal models that attract each other, the more alike the more.

    Objective of client i: (1/m) Σ_j CE_j + (κ/2) ‖w − u_i‖², started from u_i = Σ_j ξ_ij w_j, which the server mixes
    from whole models when a round ends. Travels: u_i down, w_i up (collected). Stays on the client: w_i, which is
    what is evaluated. The server keeps every client's u_i.
    """

    class Settings(BaseSettings):
        attention: Literal["heuristic", "exact"] = Field(
            "heuristic",
            description="softmax of cosines of w − w⁰, or the original exp(−‖·‖²/σ), which is 0 for large networks",
        )
        sigma: PositiveFloat = Field(10.0, description="σ of the attention")
        own: float = Field(0.5, ge=0, le=1, description="ξ_ii, the weight of a client's own model (heuristic)")
        alpha: PositiveFloat = Field(1.0, description="α of the attention (exact)")
        kappa: NonNegativeFloat = Field(0.1, description="κ = λ/α, strength of the pull; tune in {1, 0.1, 0.01}")
        over: Literal["participants", "all"] = Field(
            "participants", description="mix this round's models, or the latest of all clients seen so far"
        )

    settings: Settings

    def phases(self, client: Client, received: Message) -> list[Phase]:
        """Train everything, pulled towards the mixture."""
        mixture = client.named(client.model(received.tensors))
        return [client.phase(self.joint(client) + Proximal(mixture, self.settings.kappa))]

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Mix the participants' models by attention."""
        self.aggregate_shared(server, uploads)
        models, teachers = self.gathered(server, uploads, self.settings.over)
        own = [teachers.index(client) for client in uploads.clients]
        weights = self._weights(server, models)[own]
        for client, mixture in zip(uploads.clients, self.mixtures(server, weights, models), strict=True):
            server.keep(client, **mixture)

    def _weights(self, server: Server, models: Sequence[Mapping[str, Tensor]]) -> Matrix:
        gram = self.gram(server, models)  # of w − w⁰: distances are those of w
        if self.settings.attention == "heuristic":
            return heuristic_attention(cosines_of(gram), self.settings.sigma, self.settings.own)
        norms = np.diag(gram)
        distances = np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0.0)
        return exact_attention(distances, self.settings.sigma, self.settings.alpha)
