"""One process at a time on a run; the lock ends with its process, whatever ended that."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import TINY, tiny
from xfed import InputError, Run, open_run, resume, run
from xfed.cli import execute
from xfed.runs.lock import alone, holder


def test_the_second_is_refused_and_told_of_the_first(train: Callable[..., Run]) -> None:
    stopped = train("stopped", rounds=2)
    (stopped.path / "finished.json").unlink()
    with alone(stopped.path):
        working = rf"in use by process {os.getpid()} on {socket.gethostname()} since \d{{4}}-\d\d-\d\dT[\d:+]+; wait"
        with pytest.raises(InputError, match=working):
            resume(stopped.path, progress=False)
        assert (holder(stopped.path) or {})["pid"] == os.getpid()
    assert holder(stopped.path) is None
    assert resume(stopped.path, progress=False).finished


def test_two_that_start_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    with alone(tmp_path / "run"), pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
        run(tiny(out=tmp_path / "run", rounds=1), progress=False)
    assert run(tiny(out=tmp_path / "run", rounds=1), progress=False).finished, "a lock alone is no run"


def test_a_disk_without_locks_is_used_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.warns(UserWarning, match="has no locks; make sure that no other process"), alone(tmp_path):
        pass


@pytest.mark.slow
def test_two_processes_on_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({**TINY, "rounds": 500}))
    command = [sys.executable, "-m", "xfed", "run", "s.yaml", "--out", "run"]
    first = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (path / "checkpoints").is_dir() or not any((path / "checkpoints").glob("round-*")):
        assert first.poll() is None
        assert time.monotonic() < deadline, "no checkpoint in four minutes"
        time.sleep(0.1)
    assert execute(["resume", str(path)]) == 2
    assert f"is in use by process {first.pid} on {socket.gethostname()} since 20" in capsys.readouterr().err
    assert execute(["run", "--seed", "9", "--out", str(path)]) == 2
    assert f"is in use by process {first.pid} on" in capsys.readouterr().err
    assert execute(["check", str(path)]) == 0
    assert f"being worked on by process {first.pid} on" in capsys.readouterr().out
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = open_run(path).directory.checkpoints.rounds()[-1]
    ended = resume(path, progress=False, rounds=done + 1)
    assert ended.finished
    assert [record.round for record in ended.records()] == list(range(1, done + 2))
