"""What CIFAR-10 and CIFAR-100 have in common: pickled batches of 32 × 32 colour images."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import Container
from xfed.data.raw.pickles import read_pickle
from xfed.data.raw.source import PublishedSource
from xfed.errors import InputError

SHAPE = (3, 32, 32)


class Cifar(PublishedSource):
    """Batches in the published Python version."""

    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[tuple[str, ...]]
    label_key: ClassVar[str]
    names_file: ClassVar[str]
    names_key: ClassVar[str]

    def decode(self, raw: Container) -> Contents:
        """Read all batches, in the published order."""
        files = (*self.train_files, *self.test_files)
        read = {name: read_pickle(content, raw.where(name)) for name, content in raw.read((*files, self.names_file))}
        classes = self._classes(read[self.names_file], raw.where(self.names_file))
        batches = [self._batch(read[name], len(classes), raw.where(name)) for name in files]
        sizes = [len(labels) for _, labels in batches]
        return Contents(
            shape=(sum(sizes), *SHAPE),
            blocks=[pixels.reshape(-1, *SHAPE) for pixels, _ in batches],
            labels=np.concatenate([labels for _, labels in batches]),
            classes=classes,
            train=sum(sizes[: len(self.train_files)]),
        )

    def _classes(self, meta: dict[str, Any], where: str) -> tuple[str, ...]:
        names = meta.get(self.names_key)
        if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
            raise InputError(f"pickle {where!r} has no list of class names {self.names_key!r}")
        return tuple(name.decode("latin1") if isinstance(name, bytes) else name for name in names)

    def _batch(self, batch: dict[str, Any], classes: int, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        pixels, labels = batch.get("data"), batch.get(self.label_key)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (np.prod(SHAPE),):
            raise InputError(f"pickle {where!r} has no uint8 array 'data' of rows of {np.prod(SHAPE)} pixels")
        if not isinstance(labels, list) or len(labels) != len(pixels) or not all(type(n) is int for n in labels):
            raise InputError(f"pickle {where!r} has no list {self.label_key!r} of one label for each image")
        if labels and not 0 <= min(labels) <= max(labels) < classes:
            raise InputError(
                f"pickle {where!r} has labels from {min(labels)} to {max(labels)}; allowed: 0 to {classes - 1}"
            )
        return pixels, np.asarray(labels, dtype=np.int64)
