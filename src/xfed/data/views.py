"""What one client sees of the data: index lists into the pooled set, cut into batches on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from xfed.data.augmentation import Drawn
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Split
from xfed_runtime.text import PADDING


class Samples(NamedTuple):
    """A batch: where its samples stand in the view, inputs as a network takes them, labels."""

    positions: Tensor
    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class View:
    """Some samples of a data set. Positions count within the view, from 0.

    Indices live where the data is. Within an epoch nothing crosses between host and device, and nothing waits.
    """

    dataset: Dataset
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def shuffled(self, size: int, generator: torch.Generator, drawn: Drawn | None = None) -> Iterator[Samples]:
        """Give one epoch in random order, drawn on the CPU; the last, smaller batch is kept."""
        return self.batches(torch.randperm(len(self), generator=generator), size, drawn)

    def in_order(self, size: int) -> Iterator[Samples]:
        """Give all samples in order."""
        return self.batches(torch.arange(len(self)), size)

    def batches(self, order: Tensor, size: int, drawn: Drawn | None = None) -> Iterator[Samples]:
        """Give the samples at these positions batch after batch, gathered, changed as drawn, and normalised.

        Rows are gathered by `index_select`, which copies each as a whole; indexing goes number by number.
        Text is cut to the longest row of the batch: padding is masked everywhere, so it would cost and say nothing.
        """
        order = order.to(self.indices.device)
        chosen = self.indices[order]
        widths = self._widths(chosen, size) if self.dataset.kind == "text" else None
        batches = zip(order.split(size), chosen.split(size), self.dataset.labels[chosen].split(size), strict=True)
        for number, (positions, rows, labels) in enumerate(batches):
            inputs = self.dataset.inputs.index_select(0, rows)
            if widths is not None:
                inputs = inputs[:, : widths[number]]
            if drawn is not None:
                inputs = drawn.apply(inputs, positions)
            yield Samples(positions, self.dataset.normalise(inputs), labels)

    def _widths(self, chosen: Tensor, size: int) -> list[int]:
        """Find the longest row of every batch, all at once: reading a number off a device waits for the device."""
        rows = self.dataset.inputs.index_select(0, chosen)
        ends = torch.arange(1, rows.shape[1] + 1, dtype=torch.int32, device=rows.device)
        lengths: list[int] = ((rows != PADDING) * ends).amax(1).tolist()
        return [max([1, *lengths[start : start + size]]) for start in range(0, max(1, len(lengths)), size)]

    def labels(self) -> Tensor:
        """Give the labels in order, on the CPU."""
        return self.dataset.labels[self.indices].cpu()


@dataclass(frozen=True)
class ClientData:
    """The three views of one client."""

    train: View
    calibration: View
    test: View

    @classmethod
    def of(cls, dataset: Dataset, split: Split) -> ClientData:
        """Open the views of a client's split."""
        parts = (split.train, split.calibration, split.test)
        return cls(*(View(dataset, torch.from_numpy(part).to(dataset.labels.device)) for part in parts))
