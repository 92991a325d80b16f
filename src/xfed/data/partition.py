"""Who holds which samples: Dirichlet label skew, or an explicit file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed.errors import InputError
from xfed.randomness import Purpose, numpy_stream

Indices = NDArray[np.int64]
REDRAWS = 5_000
TRAIN_SHARE = 0.75


@dataclass(frozen=True)
class Split:
    """One client's samples: to train on, to calibrate exit policies on, to test on."""

    train: Indices
    calibration: Indices
    test: Indices


@dataclass(frozen=True)
class Partition:
    """The samples of every client; no sample belongs to two clients."""

    splits: tuple[Split, ...]

    def __len__(self) -> int:
        return len(self.splits)

    def to_json(self) -> dict[str, Any]:
        """Give the file form; `read_partition` takes it back."""
        return {
            "clients": [
                {"train": s.train.tolist(), "calibration": s.calibration.tolist(), "test": s.test.tolist()}
                for s in self.splits
            ]
        }


def dirichlet(labels: Indices, clients: int, alpha: float, minimum: int, rng: np.random.Generator) -> list[Indices]:
    """Deal out samples with label skew Dir(α) (Section 5.1 of the paper; spec section 1).

    For each class, shares over clients are drawn from Dir(α·1); a client that already holds its fair number
    N / n gets no more; the class is cut along the shares. All is drawn again until every client has at least
    `minimum` samples.
    """
    fair = len(labels) / clients
    pools = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(REDRAWS):
        owner = np.empty(len(labels), dtype=np.int64)
        held = np.zeros(clients, dtype=np.int64)
        for pool in pools:
            shares = rng.dirichlet(np.full(clients, alpha)) * (held < fair)
            if not shares.sum() > 0:
                break
            cuts = (np.cumsum(shares / shares.sum())[:-1] * len(pool)).astype(np.int64)
            counts = np.diff(cuts, prepend=0, append=len(pool))
            owner[rng.permutation(pool)] = np.repeat(np.arange(clients), counts)
            held += counts
        else:
            if held.min() >= minimum:
                return np.split(np.argsort(owner, kind="stable"), np.cumsum(held)[:-1])
    raise InputError(
        f"no Dirichlet partition in {REDRAWS:,} draws gave each of {clients} clients at least {minimum} samples "
        f"at alpha {alpha}; use fewer clients, a larger alpha, a smaller minimum or another seed"
    )


def dirichlet_partition(
    labels: Indices, clients: int, alpha: float, minimum: int, calibration: float, seed: int
) -> Partition:
    """Partition by label skew, then cut each client's samples 75 / 25 into train and test at random."""
    rng = numpy_stream(seed, Purpose.PARTITION)
    pairs = []
    for owned in dirichlet(labels, clients, alpha, minimum, rng):
        shuffled = rng.permutation(owned)
        cut = int(TRAIN_SHARE * len(shuffled))
        pairs.append((shuffled[:cut], shuffled[cut:]))
    return _with_calibration(pairs, calibration, seed)


def _with_calibration(pairs: Sequence[tuple[Indices, Indices]], share: float, seed: int) -> Partition:
    """Take the calibration share from each client's training part, never from its test part."""
    splits = []
    for client, (train, test) in enumerate(pairs):
        shuffled = numpy_stream(seed, Purpose.CALIBRATION, client).permutation(train)
        cut = int(share * len(train))
        splits.append(Split(train=shuffled[cut:], calibration=shuffled[:cut], test=test))
    return Partition(tuple(splits))


def read_partition(path: Path, samples: int, calibration: float, seed: int) -> Partition:
    """Read `{"clients": [{"train": [...], "test": [...]}, ...]}`; a `calibration` list may stand beside them.

    Where no client has a calibration list, the share is taken from the training part.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["clients"]
        parts = ("train", "calibration", "test")
        lists = [{part: _indices(entry.get(part, [])) for part in parts} for entry in entries]
    except FileNotFoundError:
        raise InputError(f"partition file {str(path)!r} does not exist") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"partition file {str(path)!r} is not a JSON object {{'clients': [{{'train': [...], 'test': [...]}}]}} "
            f"of whole numbers: {error}"
        ) from None
    owner: dict[int, int] = {}
    for client, entry in enumerate(lists):
        for part in ("train", "test"):
            if len(entry[part]) == 0:
                raise InputError(f"partition file {str(path)!r}: client {client} has an empty {part} list")
        for index in np.concatenate(list(entry.values())).tolist():
            if not 0 <= index < samples:
                raise InputError(
                    f"partition file {str(path)!r}: client {client} has index {index}; allowed: 0 to {samples - 1}"
                )
            if index in owner:
                raise InputError(
                    f"partition file {str(path)!r}: index {index} is used twice, by clients {owner[index]} "
                    f"and {client}; each sample may be used once"
                )
            owner[index] = client
    if not lists:
        raise InputError(f"partition file {str(path)!r} names no client")
    if any(len(entry["calibration"]) for entry in lists):
        return Partition(tuple(Split(**entry) for entry in lists))
    return _with_calibration([(entry["train"], entry["test"]) for entry in lists], calibration, seed)


def _indices(values: Any) -> Indices:
    if not all(type(value) is int for value in values):
        raise ValueError(f"{values!r:.60} holds something else")
    return np.asarray(values, dtype=np.int64)
