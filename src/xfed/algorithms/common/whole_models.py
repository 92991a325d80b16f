"""What FedAMP and pFedGraph share: whole personal models, mixed on the server when a round ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from xfed.algorithms.common.matching import Matrix
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Algorithm, Use
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads

CHUNK = 2**20
LATEST = "latest."


class WholeModels(Algorithm):
    """Whole models travel and are collected; the server keeps a mixture for each client it has met.

    Only one part of all models is held in memory at a time beside the uploads themselves.
    """

    travels = Parts.MODEL
    collected = Parts.MODEL

    @property
    def stays(self) -> Parts:
        """A client keeps its own model: it is evaluated with it."""
        return (Parts.MODEL | Parts.STATISTICS) & ~self.averaged

    def parts(self, server: Server) -> list[Parts]:
        """Give the parts that this network has."""
        return [part for part in Parts.MODEL if server.layout.count(part)]

    def model_for(self, server: Server, clients: Sequence[int], use: Use) -> dict[int, Message]:
        """Send each client its mixture to train from, at first the initial model; it is evaluated with its own."""
        shared = super().model_for(server, clients, use)
        return shared if use == "evaluation" else self.with_mixtures(server, shared)

    def with_mixtures(self, server: Server, messages: Mapping[int, Message]) -> dict[int, Message]:
        """Add each client's mixture to its message."""
        parts = self.parts(server)
        return {
            client: message.having({part.key: server.kept_or_initial(client, part) for part in parts})
            for client, message in messages.items()
        }

    def aggregate_shared(self, server: Server, uploads: Uploads) -> None:
        """Take in what is averaged all the same: BatchNorm statistics, where they travel."""
        super().aggregate(server, uploads)

    def gathered(
        self, server: Server, uploads: Uploads, over: Literal["participants", "all"]
    ) -> tuple[list[dict[str, Tensor]], list[int]]:
        """Give the models to mix from, and whose they are; with `all`, the latest of everyone seen so far."""
        stacks = {part.key: uploads.stack(part) for part in self.parts(server)}
        fresh = {
            client: {key: rows[number] for key, rows in stacks.items()} for number, client in enumerate(uploads.clients)
        }
        if over == "participants":
            return list(fresh.values()), list(fresh)
        for client, model in fresh.items():
            server.keep(client, **{LATEST + key: tensor for key, tensor in model.items()})
        known = server.kept.known()
        latest = [{key: server.kept.get(client)[LATEST + key] for key in stacks} for client in known]
        return latest, known

    def gram(self, server: Server, models: Sequence[Mapping[str, Tensor]], parts: Parts = Parts.MODEL) -> Matrix:
        """Give all inner products of w_i − w⁰, accumulated in float64."""
        total = np.zeros((len(models), len(models)))
        for part in self.parts(server):
            if part in parts:
                initial = server.layout.gather(server.initial, part)
                total += gram(torch.stack([model[part.key] for model in models]) - initial)
        return total

    def mixtures(
        self, server: Server, weights: Matrix, models: Sequence[Mapping[str, Tensor]]
    ) -> list[dict[str, Tensor]]:
        """Mix Σ_j weights_ij w_j from the snapshot, for each row i."""
        factors = torch.from_numpy(weights).float()
        mixed: list[dict[str, Tensor]] = [{} for _ in weights]
        for part in self.parts(server):
            rows = factors @ torch.stack([model[part.key] for model in models])
            for model, row in zip(mixed, rows, strict=True):
                model[part.key] = row.clone()
        return mixed


def gram(rows: Tensor) -> Matrix:
    """Give the inner products of all pairs of rows in float64, a stretch of columns at a time."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for piece in rows.split(CHUNK, dim=1):
        wide = piece.double()
        total += wide @ wide.T
    result: Matrix = total.numpy()
    return result


def cosines_of(gram: Matrix) -> Matrix:
    """Turn inner products into cosines; 0 where a vector is zero, 1 of each with itself."""
    norms = np.sqrt(np.diag(gram))
    scale = np.outer(norms, norms)
    cosines: Matrix = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    np.fill_diagonal(cosines, 1.0)
    return np.clip(cosines, -1.0, 1.0)
