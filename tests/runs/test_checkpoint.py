"""Checkpoints are whole or absent, and two are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import xfed.runs.checkpoint as module
from xfed import InputError
from xfed.runs.checkpoint import Checkpoint, Checkpoints


def make(round: int) -> Checkpoint:
    return Checkpoint(round, {"x": torch.tensor([float(round)])}, {7: round}, {8: round})


def test_round_trip_and_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for round in (1, 2, 3):
        checkpoints.write(make(round))
    assert checkpoints.rounds() == [2, 3]
    newest = checkpoints.read()
    assert (newest.round, newest.client_versions, newest.kept_versions) == (3, {7: 3}, {8: 3})
    assert newest.tensors["x"].item() == 3.0
    assert checkpoints.read(2).tensors["x"].item() == 2.0


def test_failure_while_writing_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(make(1))

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.write(make(2))
    assert checkpoints.rounds() == [1]
    assert checkpoints.read().round == 1


def test_very_many_versions(tmp_path: Path) -> None:
    versions = {client * 7 % 100_003: client % 1_000 + 1 for client in range(100_000)}
    Checkpoints(tmp_path).write(Checkpoint(1_000, {"x": torch.zeros(1)}, versions, {}))
    read = Checkpoints(tmp_path).read()
    assert read.client_versions == versions
    assert read.kept_versions == {}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 8 * 100_000 + 2_000


@pytest.mark.parametrize("damage", ["cut tensors", "cut versions", "cut index", "no index"])
def test_a_damaged_one_falls_back_to_the_one_before_it(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(make(1))
    checkpoints.write(make(2))
    folder = tmp_path / "round-000002"
    if damage == "no index":
        (folder / "checkpoint.json").unlink()
    else:
        names = {"cut tensors": "server.safetensors", "cut versions": "versions.safetensors"}
        path = folder / names.get(damage, "checkpoint.json")
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"round-000002.*damaged.*--round 1"):
        checkpoints.read(2)
    assert checkpoints.read().round == 1
    [told] = caplog.messages
    assert "round-000002' is damaged" in told
    assert "going on from the one before it, of round 1" in told


def test_two_damaged_ones_are_both_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for round in (1, 2):
        checkpoints.write(make(round))
        (tmp_path / f"round-{round:06d}" / "server.safetensors").unlink()
    with pytest.raises(InputError, match=r"(?s)round-000001' is damaged.*and so is the newer one.*round-000002"):
        checkpoints.read()


def test_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(make(3))
    (tmp_path / "round-copy").mkdir()
    assert checkpoints.rounds() == [3]
