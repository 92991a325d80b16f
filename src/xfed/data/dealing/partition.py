"""Who holds which samples, for any number of clients: index lists in one array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from xfed.data.dealing.ways import Indices
from xfed.errors import InputError
from xfed.files import read_tensors, write_tensors

SplitName = Literal["train", "calibration", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "calibration", "test")
CLIENTS_TOGETHER = 4096


@dataclass(frozen=True)
class Split:
    """One client's samples: to train on, to calibrate exit policies on, to test on."""

    train: Indices
    calibration: Indices
    test: Indices


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of every client, as two arrays: 100,000 clients cost their index lists and nothing else.

    `indices` holds client after client, of each the train, the calibration and the test samples; part p of client c
    is `indices[bounds[3c + p] : bounds[3c + p + 1]]`. No sample belongs to two clients, unless they are `overlapping`:
    then one may be with several, but none is trained or calibrated on by one client and tested on by another.
    """

    indices: NDArray[np.int32]
    bounds: NDArray[np.int64]
    overlapping: bool = False
    file: Path | None = field(default=None, repr=False)
    """Where the arrays are mapped from: what travels to another process instead of them."""

    @classmethod
    def of(cls, splits: Iterable[Split], overlapping: bool = False) -> Partition:
        """Lay the clients' samples out one after another."""
        parts = [np.asarray(getattr(split, part), dtype=np.int32) for split in splits for part in SPLITS]
        bounds = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.concatenate([*parts, np.empty(0, np.int32)]), bounds, overlapping)

    def __len__(self) -> int:
        return len(self.bounds) // len(SPLITS)

    def __getitem__(self, client: int) -> Split:
        """Give one client's samples."""
        if not 0 <= client < len(self):
            raise IndexError(f"no client {client}; there are {len(self)}")
        bounds = self.bounds[3 * client : 3 * client + 4].tolist()
        return Split(*(self.indices[start:stop].astype(np.int64) for start, stop in pairwise(bounds)))

    def __iter__(self) -> Iterator[Split]:
        return (self[client] for client in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Send a partition that lies in a file as the way to open it; send any other as it is."""
        if self.file is not None:
            return open_partition, (self.file,)
        return Partition, (self.indices, self.bounds, self.overlapping)

    def sizes(self, part: SplitName) -> NDArray[np.int64]:
        """Give how many samples each client has in a part."""
        return np.diff(self.bounds)[SPLITS.index(part) :: len(SPLITS)]

    def blocks(self) -> Iterator[Partition]:
        """Look at some clients at a time, so that what is computed of each needs bounded memory."""
        for start in range(0, len(self), CLIENTS_TOGETHER):
            bounds = self.bounds[3 * start : 3 * (start + CLIENTS_TOGETHER) + 1]
            yield replace(self, bounds=bounds, file=None)

    def class_counts(self, labels: Indices, classes: int, parts: Iterable[SplitName] = SPLITS) -> NDArray[np.int64]:
        """Count each client's samples of each class, in some of its parts together: clients × classes."""
        rows = np.repeat(np.arange(3 * len(self), dtype=np.int64), np.diff(self.bounds))
        cells = rows * classes + labels[self.indices[self.bounds[0] : self.bounds[-1]]]
        counts = np.bincount(cells, minlength=3 * len(self) * classes).reshape(-1, len(SPLITS), classes)
        chosen: NDArray[np.int64] = counts[:, [SPLITS.index(part) for part in parts]].sum(axis=1)
        return chosen

    def to_json(self) -> dict[str, Any]:
        """Give the readable form; `read_partition` takes it back."""
        clients = [{part: getattr(split, part).tolist() for part in SPLITS} for split in self]
        return {"overlapping": True, "clients": clients} if self.overlapping else {"clients": clients}

    def save(self, path: Path) -> Partition:
        """Write the arrays to a safetensors file, and give the same partition mapped from there."""
        indices = self.indices[self.bounds[0] : self.bounds[-1]]
        tensors = {
            "indices": torch.from_numpy(indices),
            "bounds": torch.from_numpy(self.bounds - self.bounds[0]),
            "overlapping": torch.tensor(self.overlapping),
        }
        write_tensors(path, tensors)
        return open_partition(path)


def open_partition(path: Path) -> Partition:
    """Map a file that `Partition.save` wrote: all processes that open it share its pages."""
    path = path.absolute()
    try:
        tensors = read_tensors(path)
        indices, bounds = tensors["indices"].numpy(), tensors["bounds"].numpy()
        if indices.dtype != np.int32 or bounds.dtype != np.int64:
            raise ValueError(f"indices are {indices.dtype} and bounds {bounds.dtype}; allowed: int32 and int64")
        if len(bounds) % len(SPLITS) != 1 or np.any(np.diff(bounds, prepend=0, append=len(indices)) < 0) or bounds[0]:
            raise ValueError("its bounds do not fit its indices")
        return Partition(indices, bounds, bool(tensors["overlapping"]), path)
    except FileNotFoundError:
        raise InputError(f"partition file {str(path)!r} does not exist") from None
    except Exception as error:
        raise InputError(f"partition file {str(path)!r} is damaged: {error}") from None
