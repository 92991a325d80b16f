"""Who holds which samples: dealt out by a rule, or as an explicit file says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xfed.data.dataset import Dataset
from xfed.data.dealing import Indices, dirichlet, iid, natural, pathological
from xfed.errors import InputError
from xfed.randomness import Purpose, numpy_stream

PartitionBy = Literal["dirichlet", "pathological", "iid", "natural", "file"]
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


@dataclass(frozen=True)
class PartitionPlan:
    """How samples are dealt out. Only the fields that the chosen way uses matter; see `xfed.data.dealing`."""

    by: PartitionBy | None = None
    """Without it: the file, if there is one, else Dirichlet."""
    clients: int = 20
    """How many clients; a file and natural clients bring their own number."""
    alpha: float = 0.3
    cap: bool = True
    classes_per_client: int = 2
    min_samples: int = 4
    path: Path | None = None
    calibration: float = 0.2
    seed: int = 1


def make_partition(dataset: Dataset, plan: PartitionPlan) -> Partition:
    """Deal a data set's samples out as planned, and cut each client's 75 / 25 into train and test at random.

    A file says itself what is for training and what for testing.
    """
    by = plan.by or ("dirichlet" if plan.path is None else "file")
    if (by == "file") != (plan.path is not None):
        raise InputError(
            "partition_by is 'file', but partition names none"
            if plan.path is None
            else f"partition is {str(plan.path)!r}, but partition_by is {by!r}; allowed with a file: file"
        )
    if plan.path is not None:
        return read_partition(plan.path, len(dataset), plan.calibration, plan.seed)
    rng = numpy_stream(plan.seed, Purpose.PARTITION)
    return _split(_deal(by, dataset, plan, rng), plan.calibration, plan.seed, rng)


def _deal(by: PartitionBy, dataset: Dataset, plan: PartitionPlan, rng: np.random.Generator) -> list[Indices]:
    labels = dataset.labels.cpu().numpy()
    if by == "pathological":
        return pathological(labels, plan.clients, plan.classes_per_client, plan.min_samples, rng)
    if by == "iid":
        return iid(len(labels), plan.clients, plan.min_samples, rng)
    if by == "natural":
        if dataset.groups is None:
            raise InputError(
                f"data set {dataset.name!r} does not say which client a sample belongs to; "
                "allowed as partition_by: dirichlet, pathological, iid, file"
            )
        return natural(dataset.groups.cpu().numpy(), plan.min_samples)
    return dirichlet(labels, plan.clients, plan.alpha, plan.min_samples, rng, plan.cap)


def _split(owned: Sequence[Indices], calibration: float, seed: int, rng: np.random.Generator) -> Partition:
    """Cut each client's samples 75 / 25 into train and test at random, and set calibration samples aside."""
    pairs = []
    for indices in owned:
        shuffled = rng.permutation(indices)
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
