"""FedPAC (Xu et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from xfed.algorithms.common.simplex_qp import Matrix, smallest_norm_weights
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Use, method
from xfed.protocol.client import Client
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import Uploads
from xfed.training.objectives import Batch, Objective

SMALL = 1e-3  # weights below are dropped, as in the original code


@dataclass(frozen=True)
class ClassMeans:
    """Per class: how many samples, and the mean of their features."""

    counts: Tensor
    means: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> ClassMeans:
        """Average the features of each class; zero for a class without samples."""
        counts = torch.bincount(labels, minlength=classes).double()
        sums = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, labels, features.double())
        return cls(counts, sums / counts.clamp(min=1)[:, None])

    def priors(self) -> Tensor:
        """Give π(c)."""
        return self.counts / self.counts.sum()

    def variance(self, features: Tensor, labels: Tensor) -> Tensor:
        """Give v = (1/n) [Σ_c π(c) · mean_{x ∈ c} ‖f(x)‖² − Σ_c π(c)² ‖μ(c)‖²]."""
        squares = torch.zeros_like(self.counts).index_add_(0, labels, features.double().square().sum(1))
        expected = (self.priors() * squares / self.counts.clamp(min=1)).sum()
        return (expected - (self.priors().square() * self.means.square().sum(1)).sum()) / self.counts.sum()


@dataclass(frozen=True)
class FeatureAlignment(Objective):
    """λ · mean squared distance of features to their class's centroid, averaged over the exits it applies to."""

    centroids: dict[int, Tensor]
    strength: float

    def __call__(self, batch: Batch) -> Tensor:
        """Compare features with the centroids of their labels; the mean is over batch and dimensions."""
        terms = [F.mse_loss(batch.features[j], centroids[batch.labels]) for j, centroids in self.centroids.items()]
        return self.strength * torch.stack(terms).mean()


def combination_gram(means: Matrix, variances: Matrix, row: int) -> Matrix:
    """Give P_i = diag(v) + D Dᵀ with D_j = vec(H_i − H_j): positive semi-definite by construction."""
    differences = means[row] - means
    gram: Matrix = np.diag(np.maximum(variances, 0.0)) + differences @ differences.T
    return gram


def combine(means: Matrix, variances: Matrix) -> tuple[Matrix, int]:
    """Give each client's weights over everyone's heads, and how many kept their own because the program failed."""
    rows, failures = [], 0
    for row in range(len(means)):
        weights = smallest_norm_weights(combination_gram(means, variances, row))
        if weights is None:
            failures += 1
            weights = np.eye(len(means))[row]
        large = np.where(weights < SMALL, 0.0, weights)
        weights = large if large.any() else weights  # of over a thousand clients, all may be small
        rows.append(weights / weights.sum())
    return np.stack(rows), failures


@method("fedpac")
class FedPAC(FedPer):
    """Shared backbone whose features are aligned across clients; exits combined where data are alike.

    Objective: exits first on (1/m) Σ_j CE_j, then the backbone on (1/m) Σ_j CE_j + λ · MSE(f(x), centroid of y) from
    round 2 on. Travels: backbone (averaged), exits (collected and combined), class means, counts and a variance up,
    centroids down. Stays on the client: nothing but BatchNorm statistics; the server keeps each client's exits.
    """

    travels = Parts.MODEL
    collected = Parts.EXITS
    collected_tensors = ("variances", "weighted_means", "class_means", "class_counts")

    class Settings(BaseSettings):
        lam: NonNegativeFloat = Field(
            1.0, description="λ of the alignment; a mean over batch and dimensions (original: 1)"
        )
        align: bool = Field(True, description="align features with global class centroids")
        scope: Literal["last", "per_exit"] = Field(
            "last",
            description="statistics, weights and alignment from the last exit's features, or for each exit apart",
        )
        head_epochs: PositiveInt = Field(
            1, description="epochs on the exits before the backbone (original: 1; 5 where a client seldom trains)"
        )
        head_rate: PositiveFloat | None = Field(0.1, description="learning rate of the exits; none: the round's own")

    settings: Settings

    def exits_in_scope(self, exits: int) -> list[int]:
        """Give the exits whose features count."""
        return list(range(exits)) if self.settings.scope == "per_exit" else [exits - 1]

    # On the client

    def train(self, client: Client, received: Message) -> Message:
        """Take statistics of the received model, train exits and backbone in turn, and report."""
        scope = self.exits_in_scope(client.exits)
        model = client.model(client.state, received.tensors)
        labels = client.data.train.labels()
        before = client.outputs_by_batch(model, scope).features
        means = {j: ClassMeans.of(before[j].cpu(), labels, client.classes) for j in scope}
        phase = client.phase(self.joint(client))
        heads = replace(phase, parts=Parts.EXITS, epochs=self.settings.head_epochs)
        if self.settings.head_rate is not None:
            heads = replace(heads, rate=self.settings.head_rate)
        body = replace(phase, parts=Parts.BACKBONE)
        if self.settings.align and client.round > 1:
            targets = {j: self._targets(client, received, j, means[j]) for j in scope}
            body = replace(body, objective=body.objective + FeatureAlignment(targets, self.settings.lam))
        trained = client.train(model, [heads, body])
        client.state.update(client.pack(trained, self.stays))
        after = client.outputs_by_batch(trained, scope).features
        tensors = client.pack(trained, self.travelling) | {"class_counts": means[scope[0]].counts.float()}
        for j in scope:
            tensors[f"variances.{j}"] = means[j].variance(before[j].cpu(), labels).float().view(1)
            tensors[f"weighted_means.{j}"] = (means[j].priors()[:, None] * means[j].means).float()
            tensors[f"class_means.{j}"] = ClassMeans.of(after[j].cpu(), labels, client.classes).means.float()
        return Message(tensors, {"samples": client.samples})

    def _targets(self, client: Client, received: Message, exit_index: int, own: ClassMeans) -> Tensor:
        """Give the centroid of every class; the client's own mean where there is none."""
        centroids, known = received.tensors[f"centroids.{exit_index}"], received.tensors["known_classes"]
        chosen = torch.where(known[:, None] > 0, centroids, own.means.float())
        return chosen.to(client.trainer.device)

    # On the server

    def model_for(self, server: Server, clients: Sequence[int], use: Use) -> dict[int, Message]:
        """Send the backbone and the client's combined exits."""
        messages = super().model_for(server, clients, use)
        parts = [part for part in Parts.EXITS if server.layout.count(part)]
        return {c: messages[c].having({p.key: server.kept_or_initial(c, p) for p in parts}) for c in clients}

    def besides(self, server: Server, cohort: Cohort) -> dict[int, Message]:
        """Send the centroids too."""
        centroids = {n: t for n, t in server.tensors.items() if n.startswith("centroids.") or n == "known_classes"}
        return {client: Message(centroids) for client in cohort.clients}

    def aggregate(self, server: Server, uploads: Uploads) -> None:
        """Average the backbone, update centroids, and combine exits from the snapshot of this round's."""
        super().aggregate(server, uploads)
        exits = server.layout.exits
        scope = self.exits_in_scope(exits)
        self._update_centroids(server, scope, uploads)
        combined = {}
        for j in scope:
            rows = uploads.stack(f"weighted_means.{j}").double().flatten(1).numpy()
            combined[j], failures = combine(rows, uploads.stack(f"variances.{j}").double().flatten().numpy())
            server.tensors["failed_programs"] = server.tensors.get("failed_programs", torch.zeros(1)) + failures
        weights = [torch.from_numpy(combined.get(j, combined[exits - 1])).float() for j in range(exits)]
        mixed = {Parts.LAST_EXIT.key: weights[-1] @ uploads.stack(Parts.LAST_EXIT)}
        if exits > 1:
            lengths = [server.layout.exit_count(j) for j in range(exits - 1)]
            pieces = uploads.stack(Parts.SHALLOW_EXITS).split(lengths, dim=1)
            mixed[Parts.SHALLOW_EXITS.key] = torch.cat([w @ p for w, p in zip(weights, pieces, strict=False)], dim=1)
        for number, client in enumerate(uploads.clients):
            server.keep(client, **{name: rows[number].clone() for name, rows in mixed.items()})

    def _update_centroids(self, server: Server, scope: Sequence[int], uploads: Uploads) -> None:
        """Average the class means by their counts; a class nobody held this round keeps its centroid."""
        counts = uploads.stack("class_counts").double()
        totals = counts.sum(0)
        present = totals > 0
        for j in scope:
            means = uploads.stack(f"class_means.{j}").double()
            fresh = ((counts[:, :, None] * means).sum(0) / totals.clamp(min=1)[:, None]).float()
            old = server.tensors.get(f"centroids.{j}", torch.zeros_like(fresh))
            server.tensors[f"centroids.{j}"] = torch.where(present[:, None], fresh, old)
        known = server.tensors.get("known_classes", torch.zeros(len(totals)))
        server.tensors["known_classes"] = torch.maximum(known, present.float())
