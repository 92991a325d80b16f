from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xfed.data.dataset import Dataset
from xfed.data.partition import (
    Partition,
    PartitionPlan,
    make_partition,
    read_partition,
)
from xfed.errors import InputError

LABELS = torch.arange(400) % 10


def data(groups: torch.Tensor | None = None) -> Dataset:
    return Dataset("some", torch.zeros(400, 1, 2, 2, dtype=torch.uint8), LABELS, tuple("0123456789"), groups=groups)


def same(one: Partition, other: Partition) -> bool:
    return one.to_json() == other.to_json()


@pytest.mark.parametrize("by", ["dirichlet", "pathological", "iid", "natural"])
def test_every_way_keeps_the_rules(by: Any) -> None:
    source = data(groups=torch.arange(400) // 50)
    plan = PartitionPlan(by=by, clients=8, seed=3)
    partition = make_partition(source, plan)
    assert len(partition) == 8
    owned = [np.concatenate([split.train, split.calibration, split.test]) for split in partition.splits]
    assert sorted(np.concatenate(owned).tolist()) == list(range(400)), "every sample once"
    for split, indices in zip(partition.splits, owned, strict=True):
        assert len(split.test) == len(indices) - int(0.75 * len(indices))
        assert len(split.calibration) == int(0.2 * int(0.75 * len(indices)))
    assert same(partition, make_partition(source, plan)), "the seed decides"
    assert not same(partition, make_partition(source, PartitionPlan(by=by, clients=8, seed=4)))


def test_dirichlet_is_the_default() -> None:
    by_plan = make_partition(data(), PartitionPlan(clients=8, alpha=0.5, seed=3))
    spelled_out = PartitionPlan(by="dirichlet", clients=8, alpha=0.5, cap=True, min_samples=4, calibration=0.2, seed=3)
    assert same(by_plan, make_partition(data(), spelled_out))


def test_natural_clients_stay_together() -> None:
    partition = make_partition(data(groups=torch.arange(400) // 50), PartitionPlan(by="natural", clients=3))
    for client, split in enumerate(partition.splits):
        assert {*split.train.tolist(), *split.test.tolist()} <= set(range(50 * client, 50 * client + 50))


def test_the_cap_is_a_setting() -> None:
    plans = [PartitionPlan(clients=5, alpha=0.1, seed=1, cap=cap) for cap in (True, False)]
    assert not same(make_partition(data(), plans[0]), make_partition(data(), plans[1]))


def test_by_file(tmp_path: Path) -> None:
    path = tmp_path / "partition.json"
    path.write_text(json.dumps({"clients": [{"train": [3, 1], "test": [0]}, {"train": [9], "test": [7, 8]}]}))
    for by in (None, "file"):
        partition = make_partition(data(), PartitionPlan(by=by, path=path, calibration=0.0))  # type: ignore[arg-type]
        assert [sorted(split.train.tolist()) for split in partition.splits] == [[1, 3], [9]]
        assert [split.test.tolist() for split in partition.splits] == [[0], [7, 8]]
    assert same(read_partition(path, 400, 0.5, 1), make_partition(data(), PartitionPlan(path=path, calibration=0.5)))


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (PartitionPlan(by="natural"), "data set 'some' does not say which client a sample belongs to; allowed as part"),
        (PartitionPlan(by="file"), "partition_by is 'file', but partition names none"),
        (
            PartitionPlan(by="iid", path=Path("p.json")),
            "partition is 'p.json', but partition_by is 'iid'; allowed with",
        ),
        (PartitionPlan(path=Path("nowhere.json")), "partition file 'nowhere.json' does not exist"),
        (PartitionPlan(by="iid", clients=101), "a client would get 3 samples, but min_samples is 4"),
        (PartitionPlan(by="pathological", classes_per_client=11), "classes_per_client is 11; allowed with 20 clients"),
    ],
)
def test_what_cannot_be_is_told(plan: PartitionPlan, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_partition(data(), plan)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense", "is not a JSON object"),
        ('{"clients": []}', "names no client"),
        ('{"clients": [{"train": [1], "test": []}]}', "client 0 has an empty test list"),
        ('{"clients": [{"train": [1], "test": [400]}]}', "client 0 has index 400; allowed: 0 to 399"),
        ('{"clients": [{"train": [1], "test": [-1]}]}', "client 0 has index -1"),
        (
            '{"clients": [{"train": [1], "test": [2]}, {"train": [3], "test": [1]}]}',
            "index 1 is used twice, by clients 0",
        ),
        ('{"clients": [{"train": [1.5], "test": [2]}]}', "of whole numbers"),
    ],
)
def test_bad_files_are_told(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_partition(tmp_path / "p.json", 400, 0.2, 1)
