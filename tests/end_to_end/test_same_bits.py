"""Same seed, same bits: for any number of workers, and after SIGKILL at any moment and resume."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.bits import differences
from tests.conftest import TINY
from xfed import Run, open_run, resume

KILLER = Path(__file__).parent / "killer.py"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.conftest import tiny
    from xfed import run

    return run(tiny(out=tmp_path_factory.mktemp("reference") / "run"), progress=False)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_a_bit(reference: Run, train: Callable[..., Run], workers: int) -> None:
    assert differences(reference, train(engine="processes", workers=workers)) == []


def test_another_seed_changes_bits(reference: Run, train: Callable[..., Run]) -> None:
    assert "server/model.parameters" in differences(reference, train(seed=2))


@pytest.mark.parametrize("point", ["mid-round", "client-state", "checkpoint", "between-rounds"])
def test_killed_and_resumed(reference: Run, tmp_path: Path, point: str) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({**TINY, "engine": "processes", "workers": 2}))
    path = tmp_path / "run"
    command = ["-m", "xfed", "run", str(settings), "--plugin", str(KILLER), "--out", str(path)]
    killed = subprocess.run([sys.executable, *command], env={**os.environ, "XFED_TEST_KILL": point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    stopped = open_run(path)
    assert not stopped.finished
    assert stopped.directory.checkpoints.rounds()[-1] == (2 if point == "between-rounds" else 1)
    resumed = resume(path, progress=False, engine="serial")
    assert resumed.finished
    assert differences(reference, resumed) == []


def test_resume_from_the_command_line_and_from_any_round(reference: Run, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(reference.path, path)
    (path / "finished.json").unlink()
    command = [sys.executable, "-m", "xfed", "resume", str(path), "--round", "3", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "finished" in done.stdout
    assert differences(reference, open_run(path)) == []
