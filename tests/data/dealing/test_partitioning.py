"""Every way of dealing out keeps the rules that all share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.data.dealing.partitioning import GOES_WITH, Dealing, make_partition
from xfed.data.dealing.ways import dirichlet, iid
from xfed.errors import InputError
from xfed.randomness import Purpose, numpy_stream

LABELS = torch.arange(400) % 10


def data(groups: torch.Tensor | None = None) -> Dataset:
    return Dataset("some", torch.zeros(400, 1, 2, 2, dtype=torch.uint8), LABELS, tuple("0123456789"), groups=groups)


def plan_of(by: Any = None, path: Path | None = None, seed: int = 1, **fields: Any) -> tuple[Dealing, int]:
    return Dealing(partition_by=by, partition=path, **fields), seed


def same(one: Partition, other: Partition) -> bool:
    return one.to_json() == other.to_json()


@pytest.mark.parametrize("by", ["dirichlet", "pathological", "iid", "natural"])
def test_every_way_keeps_the_rules(by: Any) -> None:
    source = data(groups=torch.arange(400) // 50)
    plan = plan_of(by=by, clients=8, seed=3)
    partition = make_partition(source, *plan)
    assert len(partition) == 8
    assert not partition.overlapping
    owned = [np.concatenate([split.train, split.calibration, split.test]) for split in partition]
    assert sorted(np.concatenate(owned).tolist()) == list(range(400)), "every sample once"
    for split, indices in zip(partition, owned, strict=True):
        assert len(split.test) == len(indices) - int(0.75 * len(indices))
        assert len(split.calibration) == int(0.2 * int(0.75 * len(indices)))
    assert same(partition, make_partition(source, *plan)), "the seed decides"
    assert not same(partition, make_partition(source, *plan_of(by=by, clients=8, seed=4)))


@pytest.mark.parametrize("calibration", [0.0, 0.2])
@pytest.mark.parametrize("by", ["dirichlet", "iid"])
def test_the_streams_that_decide(by: Any, calibration: float) -> None:
    """One stream deals and cuts, client after client; each client's own stream chooses its calibration samples."""
    rng = numpy_stream(5, Purpose.PARTITION)
    owned = dirichlet(LABELS.numpy(), 6, 0.3, 4, rng) if by == "dirichlet" else iid(400, 6, 4, rng)
    shuffled = [rng.permutation(indices) for indices in owned]
    partition = make_partition(data(), *plan_of(by=by, clients=6, seed=5, calibration=calibration))
    for client, (split, indices) in enumerate(zip(partition, shuffled, strict=True)):
        cut = int(0.75 * len(indices))
        train = numpy_stream(5, Purpose.CALIBRATION, client).permutation(indices[:cut])
        kept = int(calibration * cut)
        assert split.calibration.tolist() == train[:kept].tolist()
        assert split.train.tolist() == train[kept:].tolist()
        assert split.test.tolist() == indices[cut:].tolist()


def test_dirichlet_is_the_default() -> None:
    by_plan = make_partition(data(), *plan_of(clients=8, alpha=0.5, seed=3))
    spelled_out = plan_of(by="dirichlet", clients=8, alpha=0.5, cap=True, min_samples=4, calibration=0.2, seed=3)
    assert same(by_plan, make_partition(data(), *spelled_out))


def test_natural_clients_stay_together() -> None:
    partition = make_partition(data(groups=torch.arange(400) // 50), *plan_of(by="natural", clients=3))
    for client, split in enumerate(partition):
        assert {*split.train.tolist(), *split.test.tolist()} <= set(range(50 * client, 50 * client + 50))


def test_the_cap_is_a_setting() -> None:
    plans = [plan_of(clients=5, alpha=0.1, seed=1, cap=cap) for cap in (True, False)]
    assert not same(make_partition(data(), *plans[0]), make_partition(data(), *plans[1]))


def test_overlapping_clients_outnumber_the_samples() -> None:
    plan = plan_of(by="overlapping", clients=1_000, samples_per_client=40, alpha=0.3, calibration=0.2, seed=3)
    partition = make_partition(data(), *plan)
    assert partition.overlapping
    sizes = [(len(split.train), len(split.calibration), len(split.test)) for split in partition]
    assert sizes == [(24, 6, 10)] * 1_000
    assert same(partition, make_partition(data(), *plan))


def test_by_file(tmp_path: Path) -> None:
    path = tmp_path / "partition.json"
    path.write_text(json.dumps({"clients": [{"train": [3, 1], "test": [0]}, {"train": [9], "test": [7, 8]}]}))
    for by in (None, "file"):
        partition = make_partition(data(), *plan_of(by=by, path=path, calibration=0.0))  # type: ignore[arg-type]
        assert [sorted(split.train.tolist()) for split in partition] == [[1, 3], [9]]
        assert [split.test.tolist() for split in partition] == [[0], [7, 8]]
    halved = make_partition(data(), *plan_of(path=path, calibration=0.5, seed=2))
    first = numpy_stream(2, Purpose.CALIBRATION, 0).permutation([3, 1]).tolist()
    assert (halved[0].calibration.tolist(), halved[0].train.tolist()) == (first[:1], first[1:])


@pytest.mark.parametrize("name", ["p.json", "p.safetensors"])
@pytest.mark.parametrize("by", ["iid", "overlapping"])
def test_a_partition_with_calibration_samples_stays_as_it_is(tmp_path: Path, by: Any, name: str) -> None:
    made = make_partition(data(), *plan_of(by=by, clients=8, seed=3))
    if name.endswith("json"):
        (tmp_path / name).write_text(json.dumps(made.to_json()))
    else:
        made.save(tmp_path / name)
    for share in (0.0, 0.2):
        assert same(made, make_partition(data(), *plan_of(path=tmp_path / name, calibration=share, seed=9)))
    with pytest.raises(InputError, match=r"calibration is 0\.5, but .* lists calibration samples of its own"):
        make_partition(data(), *plan_of(path=tmp_path / name, calibration=0.5))


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (plan_of(by="natural"), "data set 'some' does not say which client a sample belongs to; allowed as part"),
        (plan_of(by="file"), "partition_by is 'file', but partition names none"),
        (
            plan_of(by="iid", path=Path("p.json")),
            "partition is 'p.json', but partition_by is 'iid'; allowed with",
        ),
        (plan_of(path=Path("nowhere.json")), "partition file 'nowhere.json' does not exist"),
        (
            plan_of(by="iid", clients=101),
            "a client would get 3 samples, but min_samples is 4; use fewer clients, a smaller min_samples or "
            "partition_by 'overlapping'",
        ),
        (plan_of(clients=101), "400 samples are too few for 101 clients with at least 4 each; .*'overlapping'"),
        (plan_of(by="pathological", classes_per_client=11), "classes_per_client is 11; allowed with 20 clients"),
        (
            plan_of(by="overlapping", samples_per_client=401),
            "samples_per_client is 401, 300 to train and 101 to test, but the pools hold 300 and 100",
        ),
    ],
)
def test_what_cannot_be_is_told(plan: tuple[Dealing, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_partition(data(), *plan)


OTHERWISE = {"alpha": 5.0, "cap": False, "classes_per_client": 3, "samples_per_client": 30, "min_samples": 40}
"""A value for each setting of some ways that deals out otherwise, or (min_samples, of 20 each) nothing at all."""


@pytest.mark.parametrize("name", OTHERWISE)
@pytest.mark.parametrize("by", ["dirichlet", "pathological", "iid", "natural", "overlapping"])
def test_a_setting_that_the_way_uses_matters_and_any_other_is_refused(by: Any, name: str) -> None:
    source = data(groups=torch.arange(400) // 20)
    usual = make_partition(source, *plan_of(by=by))
    if by not in GOES_WITH[name]:
        with pytest.raises(ValueError, match=f"{name} is .* goes with partition_by .*, not with {by}; leave it out"):
            plan_of(by=by, **{name: OTHERWISE[name]})
    elif name == "min_samples":
        with pytest.raises(InputError, match="min_samples"):
            make_partition(source, *plan_of(by=by, **{name: OTHERWISE[name]}))
    else:
        assert not same(usual, make_partition(source, *plan_of(by=by, **{name: OTHERWISE[name]})))


def test_settings_written_out_at_their_defaults_go_with_every_way(tmp_path: Path) -> None:
    for by in ("dirichlet", "pathological", "iid", "natural", "overlapping"):
        assert Dealing(**Dealing(partition_by=by).model_dump()).way == by
    with pytest.raises(ValueError, match=r"alpha is 0.1, .* not with file"):
        plan_of(path=tmp_path / "partition.json", alpha=0.1)
