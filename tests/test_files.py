"""Files are whole or absent, named in what goes wrong, and as private as their owner wants."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from xfed import InputError, Run
from xfed.errors import WORLD, in_words
from xfed.files import sweep, whole, whole_folder, write_tensors, write_text


@pytest.fixture
def narrow() -> Iterator[None]:
    """A user whose files are for the group, and not for others."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_all_files_of_a_run_follow_the_users_umask(train: Callable[..., Run], narrow: None) -> None:
    found = {stat.S_IMODE(path.stat().st_mode) for path in train(rounds=1).path.rglob("*") if path.is_file()}
    assert found == {0o640}


def test_a_private_file_is_never_anybody_elses(tmp_path: Path) -> None:
    with whole(tmp_path / "secret", private=True) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("x")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe' is no plain file and would be replaced"):
        write_text(tmp_path / "pipe", "x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_library_that_hides_the_error_is_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "a.safetensors"))
    assert list(tmp_path.iterdir()) == [], "nothing is left of what could not be written"


@pytest.mark.parametrize("number", sorted(WORLD))
def test_every_error_of_the_world_names_the_file_and_what_to_do(number: int) -> None:
    what, advice = WORLD[number]
    assert in_words(OSError(number, os.strerror(number), "a/file")) == f"'a/file' cannot be used: {what}; {advice}"


def test_an_error_without_a_number_keeps_its_words() -> None:
    assert in_words(OSError("nobody\n  knows")) == "nobody knows"
    assert in_words(OSError(errno.EXDEV, "Invalid cross-device link", "a")) == (
        "'a' cannot be used: Invalid cross-device link"
    )


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    with whole_folder(folder, ["*.json"]) as fresh:
        write_text(fresh / "a.json", "1")

    def fail() -> None:
        with whole_folder(folder, ["*.json"]) as fresh:
            write_text(fresh / "b.json", "2")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.name for path in folder.iterdir()] == ["a.json"]
    with whole_folder(folder, ["*.json"]) as fresh:
        write_text(fresh / "b.json", "2")
    assert [path.name for path in folder.iterdir()] == ["b.json"]
    write_text(folder / "mine.txt", "precious")
    with pytest.raises(InputError, match=r"holds 'mine\.txt' and would be replaced"), whole_folder(folder, ["*.json"]):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["policies"]


def test_policies_and_their_table_come_together_or_not_at_all(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    from xfed import calibrate

    run = train(rounds=1)
    calibrate(run, budget=0.6)
    before = {path.name: path.read_text() for path in run.directory.policies.iterdir()}
    assert len(before) == 7

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("xfed.calibration.policies.write_text", full)
    with pytest.raises(OSError, match="No space left"):
        calibrate(run, budget=0.9)
    assert {path.name: path.read_text() for path in run.directory.policies.iterdir()} == before


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    deep = tmp_path / "traces"
    deep.mkdir()
    (deep / f".test-000001.parquet.{ended.pid}.tmp").touch()
    kept = {deep / f".test-000002.parquet.{os.getpid()}.tmp", deep / "notes.tmp", deep / ".hidden.tmp", tmp_path / "x"}
    for path in kept:
        path.touch()
    sweep(tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == kept
