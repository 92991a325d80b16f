"""What one client sees of the data: index lists into the pooled set, cut into batches on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from xfed.data.dataset import Dataset
from xfed.data.partition import Split
from xfed.data.text import PADDING


@dataclass(frozen=True)
class View:
    """Some samples of a data set. Positions count within the view, from 0."""

    dataset: Dataset
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Gather and normalise the inputs at these positions, with their labels.

        Text is cut to the longest row of the batch: padding is masked everywhere, so it would cost and say nothing.
        """
        chosen = self.indices[positions].to(self.dataset.labels.device)
        inputs = self.dataset.normalise(self.dataset.inputs[chosen])
        if self.dataset.kind == "text":
            inputs = inputs[:, : int((inputs != PADDING).any(0).nonzero().max()) + 1]
        return inputs, self.dataset.labels[chosen]

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Give the positions of one epoch in random order; the last, smaller batch is kept."""
        return iter(torch.randperm(len(self), generator=generator).split(size))

    def in_order(self, size: int) -> Iterator[Tensor]:
        """Give all positions in order."""
        return iter(torch.arange(len(self)).split(size))

    def labels(self) -> Tensor:
        """Give the labels in order, on the CPU."""
        return self.dataset.labels[self.indices.to(self.dataset.labels.device)].cpu()


@dataclass(frozen=True)
class ClientData:
    """The three views of one client."""

    train: View
    calibration: View
    test: View

    @classmethod
    def of(cls, dataset: Dataset, split: Split) -> ClientData:
        """Open the views of a client's split."""
        return cls(*(View(dataset, torch.from_numpy(part)) for part in (split.train, split.calibration, split.test)))
