"""A FedAvg round the plain way, as simulators usually do it: what `benchmarks.round` prints a factor against.

Channels first, the ReLU before the pool, a DataLoader per client, one process with all threads; the round's clients
one after another, then every client of the population evaluated in turn. Imports nothing of xfed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

STAGES = 3


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images that are normalised one by one."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return (self.images[index].float() / 255 - 0.5) / 0.5, self.labels[index]


class Network(nn.Module):
    """Three convolutions, an exit after each."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(c, width, 3) for c in [3, *[width] * (STAGES - 1)])
        self.exits = nn.ModuleList(nn.Linear(width, classes) for _ in range(STAGES))

    def forward(self, maps: Tensor) -> list[Tensor]:
        """Give the logits of all exits."""
        logits = []
        for convolution, head in zip(self.convolutions, self.exits, strict=True):
            maps = F.max_pool2d(F.relu(convolution(maps)), 2)
            logits.append(head(maps.mean((2, 3))))
        return logits


def plain_round(
    images: Tensor,
    labels: Tensor,
    width: int,
    cohort: Sequence[Sequence[int]],
    tested: Sequence[Sequence[int]],
    epochs: int,
    batch_size: int,
    rate: float,
) -> tuple[float, float]:
    """Run one round on the cohort's training samples and everyone's test samples; give seconds of both halves."""
    data = Images(images, labels)
    model = Network(width, int(labels.max()) + 1)
    begin = perf_counter()
    trained = [_train(copy.deepcopy(model), Subset(data, rows), epochs, batch_size, rate) for rows in cohort]
    total = sum(map(len, cohort))
    mean = {
        name: sum(len(rows) / total * client.state_dict()[name] for client, rows in zip(trained, cohort, strict=True))
        for name in model.state_dict()
    }
    model.load_state_dict(mean)
    middle = perf_counter()
    for rows in tested:
        _evaluate(model, Subset(data, rows), batch_size)
    return middle - begin, perf_counter() - middle


def _train(model: Network, data: Subset[tuple[Tensor, Tensor]], epochs: int, batch_size: int, rate: float) -> Network:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    for _ in range(epochs):
        for inputs, target in DataLoader(data, batch_size, shuffle=True):
            loss = sum(F.cross_entropy(logits, target) for logits in model(inputs)) / STAGES
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def _evaluate(model: Network, data: Subset[tuple[Tensor, Tensor]], batch_size: int) -> list[int]:
    right = [0] * STAGES
    for inputs, target in DataLoader(data, batch_size):
        for index, logits in enumerate(model(inputs)):
            right[index] += int((logits.argmax(1) == target).sum())
    return right
