"""From a plan to a partition: samples dealt out by a rule, or as a file says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from xfed.data.dataset import Dataset
from xfed.data.dealing.overlapping import overlapping
from xfed.data.dealing.partition import Partition, Split
from xfed.data.dealing.partition_file import read_partition
from xfed.data.dealing.ways import Indices, dirichlet, iid, natural, pathological
from xfed.errors import InputError
from xfed.randomness import Purpose, numpy_stream

PartitionBy = Literal["dirichlet", "pathological", "iid", "natural", "overlapping", "file"]
TRAIN_SHARE = 0.75


@dataclass(frozen=True)
class PartitionPlan:
    """How samples are dealt out. Only the fields that the chosen way uses matter; see `xfed.data.dealing.ways`."""

    by: PartitionBy | None = None
    """Without it: the file, if there is one, else Dirichlet."""
    clients: int = 20
    """How many clients; a file and natural clients bring their own number."""
    alpha: float = 0.3
    cap: bool = True
    classes_per_client: int = 2
    min_samples: int = 4
    samples_per_client: int = 100
    path: Path | None = None
    calibration: float = 0.2
    seed: int = 1


def make_partition(dataset: Dataset, plan: PartitionPlan) -> Partition:
    """Deal a data set's samples out as planned, and cut each client's 75 / 25 into train and test at random.

    A file says itself what is for training and what for testing; where no client of it has a calibration list, the
    calibration share is taken from the training part.
    """
    by = plan.by or ("dirichlet" if plan.path is None else "file")
    if (by == "file") != (plan.path is not None):
        raise InputError(
            "partition_by is 'file', but partition names none"
            if plan.path is None
            else f"partition is {str(plan.path)!r}, but partition_by is {by!r}; allowed with a file: file"
        )
    if plan.path is not None:
        partition = read_partition(plan.path, len(dataset))
        if partition.sizes("calibration").any():
            return partition
        pairs = ((split.train, split.test) for split in partition)
        return _with_calibration(pairs, plan.calibration, plan.seed, partition.overlapping)
    rng = numpy_stream(plan.seed, Purpose.PARTITION)
    if by == "overlapping":
        labels = dataset.labels.cpu().numpy()
        shares = (TRAIN_SHARE, plan.calibration)
        return overlapping(labels, plan.clients, plan.samples_per_client, plan.alpha, shares, rng)
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
                "allowed as partition_by: dirichlet, pathological, iid, overlapping, file"
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


def _with_calibration(
    pairs: Iterable[tuple[Indices, Indices]], share: float, seed: int, overlapping: bool = False
) -> Partition:
    """Take the calibration share from each client's training part, never from its test part."""
    splits = []
    for client, (train, test) in enumerate(pairs):
        shuffled = numpy_stream(seed, Purpose.CALIBRATION, client).permutation(train)
        cut = int(share * len(train))
        splits.append(Split(train=shuffled[cut:], calibration=shuffled[:cut], test=test))
    return Partition.of(splits, overlapping)
