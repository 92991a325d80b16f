"""A pooled data set in memory: raw inputs, labels, class names and how a batch is normalised."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xfed.components import Component, Registry
from xfed.errors import InputError


@dataclass(frozen=True)
class Dataset:
    """Samples of all clients together; a client sees it only through the indices it owns.

    Inputs stay as stored (uint8 images N × C × H × W); `normalise` turns a batch of them into
    (x / scale − mean) / std, in float32.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    scale: float = 255.0
    mean: float = 0.5
    std: float = 0.5

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise InputError(f"data set {self.name!r} has {len(self.inputs)} inputs but {len(self.labels)} labels")
        if len(self.labels) == 0:
            raise InputError(f"data set {self.name!r} is empty")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            raise InputError(
                f"data set {self.name!r} has labels from {low} to {high}; "
                f"allowed with {len(self.classes)} classes: 0 to {len(self.classes) - 1}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])

    def normalise(self, raw: Tensor) -> Tensor:
        """Turn stored values into what a network takes."""
        return raw.to(torch.float32).mul_(1 / (self.scale * self.std)).sub_(self.mean / self.std)

    def to(self, device: torch.device) -> Dataset:
        """Move the samples to a device, once."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def shared(self) -> Dataset:
        """Lay the samples into shared memory, so that worker processes need no copy."""
        return replace(self, inputs=self.inputs.share_memory_(), labels=self.labels.share_memory_())

    def checksum(self) -> str:
        """Identify the content: shapes, types, input bytes and labels."""
        digest = hashlib.sha256(f"{self.inputs.dtype}{tuple(self.inputs.shape)}{self.classes}".encode())
        digest.update(self.inputs.cpu().contiguous().numpy().data)
        digest.update(self.labels.cpu().numpy().astype(np.int64).data)
        return digest.hexdigest()


class DatasetSource(Component):
    """Where a data set comes from; subclasses load it and document its settings."""

    recommended: ClassVar[Mapping[str, Any]] = {}
    """Experiment settings that suit this data set; they stand in for the general defaults."""

    def load(self) -> Dataset:
        """Read the whole data set, published train and test parts pooled."""
        raise NotImplementedError


datasets: Registry[DatasetSource] = Registry("dataset", DatasetSource, "xfed.data")
dataset = datasets.register
