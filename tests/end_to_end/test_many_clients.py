"""More clients than samples: same bits everywhere, and only clients that were touched exist on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bits import differences
from xfed import Run, resume
from xfed.data.dealing.partition import open_partition
from xfed.federation.plan import Plan

MANY: dict[str, Any] = {
    "clients": 2_000,
    "sample": 0.002,
    "partition_by": "overlapping",
    "samples_per_client": 16,
    "eval_clients": 20,
}


def test_two_thousand_clients_of_digits(train: Callable[..., Run]) -> None:
    serial = train("serial", method="ditto", **MANY)
    partition = open_partition(serial.directory.partition)
    assert (len(partition), partition.overlapping) == (2_000, True)
    e = serial.experiment
    plan = Plan(e.training.rounds, e.cohort_size, 1, 1, [10] * 2_000, [4] * 2_000, e.seed)
    touched = {client for round in range(1, e.training.rounds + 1) for client in plan.cohort(round).clients}
    files = [path.stem for path in serial.directory.client_states.rglob("*.safetensors")]
    assert {int(stem.split("-")[0]) for stem in files} == touched
    assert len(touched) <= 4 * 4


@pytest.mark.slow
def test_workers_map_the_partition(train: Callable[..., Run]) -> None:
    assert differences(train("serial", **MANY), train("workers", engine="processes", workers=2, **MANY)) == []


@pytest.mark.parametrize("calibration", [0.0, 0.2])
def test_resume_reads_the_partition_as_it_was(train: Callable[..., Run], tmp_path: Path, calibration: float) -> None:
    whole = train("whole", calibration=calibration)
    shutil.copytree(whole.path, tmp_path / "cut")
    (tmp_path / "cut" / "finished.json").unlink()
    assert differences(whole, resume(tmp_path / "cut", progress=False, from_round=3)) == []
    before, after = (open_partition(path / "partition.safetensors") for path in (whole.path, tmp_path / "cut"))
    assert before.to_json() == after.to_json()
