"""From a plan to a partition: samples dealt out by a rule, or as a file says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from xfed.components import BaseSettings
from xfed.data.dataset import Dataset
from xfed.data.dealing.overlapping import overlapping
from xfed.data.dealing.partition import Partition, Split
from xfed.data.dealing.partition_file import read_partition
from xfed.data.dealing.ways import Indices, dirichlet, iid, natural, pathological
from xfed.errors import InputError
from xfed.randomness import Purpose, numpy_stream

PartitionBy = Literal["dirichlet", "pathological", "iid", "natural", "overlapping", "file"]
TRAIN_SHARE = 0.75
GOES_WITH: dict[str, tuple[PartitionBy, ...]] = {
    "alpha": ("dirichlet", "overlapping"),
    "cap": ("dirichlet",),
    "classes_per_client": ("pathological",),
    "min_samples": ("dirichlet", "pathological", "iid", "natural"),
    "samples_per_client": ("overlapping",),
}
"""Ways of dealing out that a setting says anything to."""


class Dealing(BaseSettings):
    """How samples are dealt out; see `xfed.data.dealing.ways`.

    Settings that the chosen way does not use stay at their defaults: one that would do nothing is refused.
    """

    clients: PositiveInt = Field(20, description="number of clients")
    partition_by: PartitionBy | None = Field(
        None, description="how samples are dealt out; default: the partition file if there is one, else dirichlet"
    )
    alpha: PositiveFloat = Field(0.3, description="Dirichlet label skew: smaller is more skewed")
    cap: bool = Field(True, description="Dirichlet: a client that holds its fair number of samples gets no more")
    classes_per_client: PositiveInt = Field(2, description="pathological: number of classes each client holds")
    min_samples: int = Field(4, ge=2, description="smallest number of samples a client may get")
    samples_per_client: int = Field(100, ge=2, description="overlapping: number of samples each client draws")
    partition: Path | None = Field(
        None, description="JSON file with each client's train and test indices, or partition.safetensors of a run"
    )
    calibration: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="share of the training samples set aside to calibrate exits; 0 in the paper",
    )

    @model_validator(mode="after")
    def _nothing_idle(self) -> Dealing:
        for name, ways in GOES_WITH.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and self.way not in ways:
                raise ValueError(
                    f"{name} is {value}, which goes with partition_by {' or '.join(ways)}, not with {self.way}; "
                    f"leave it out, or at its default {default}"
                )
        return self

    @property
    def way(self) -> PartitionBy:
        """The chosen way, or what stands for none: the file, if there is one, else Dirichlet."""
        return self.partition_by or ("dirichlet" if self.partition is None else "file")

    def in_words(self) -> str:
        """Say how samples were dealt out, for captions."""
        return {
            "dirichlet": f"Dir({self.alpha:g})",
            "pathological": f"{self.classes_per_client} classes per client",
            "iid": "iid",
            "natural": "natural clients",
            "overlapping": f"overlapping Dir({self.alpha:g}), {self.samples_per_client} samples each",
            "file": "partition from a file" if self.partition is None else f"partition file {self.partition.name}",
        }[self.way]


def make_partition(dataset: Dataset, plan: Dealing, seed: int) -> Partition:
    """Deal a data set's samples out as planned, and cut each client's 75 / 25 into train and test at random.

    A file says itself what is for training and what for testing; where no client of it has a calibration list, the
    calibration share is taken from the training part, and where one has, a share that is asked for is refused.
    """
    by, path = plan.way, plan.partition
    if (by == "file") != (path is not None):
        raise InputError(
            "partition_by is 'file', but partition names none"
            if path is None
            else f"partition is {str(path)!r}, but partition_by is {by!r}; allowed with a file: file"
        )
    if path is not None:
        partition = read_partition(path, len(dataset))
        if partition.sizes("calibration").any():
            default = Dealing.model_fields["calibration"].default
            if plan.calibration not in (0, default):
                raise InputError(
                    f"calibration is {plan.calibration:g}, but partition file {str(path)!r} lists calibration samples "
                    f"of its own; leave it out, or at its default {default:g}"
                )
            return partition
        pairs = ((split.train, split.test) for split in partition)
        return _with_calibration(pairs, plan.calibration, seed, partition.overlapping)
    rng = numpy_stream(seed, Purpose.PARTITION)
    if by == "overlapping":
        labels = dataset.labels.cpu().numpy()
        shares = (TRAIN_SHARE, plan.calibration)
        return overlapping(labels, plan.clients, plan.samples_per_client, plan.alpha, shares, rng)
    return _split(_deal(by, dataset, plan, rng), plan.calibration, seed, rng)


def _deal(by: PartitionBy, dataset: Dataset, plan: Dealing, rng: np.random.Generator) -> list[Indices]:
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
