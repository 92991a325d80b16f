"""Ctrl-C and SIGTERM: a run stops at once, says how to go on, leaves nothing behind, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.bits import differences
from tests.conftest import TINY, tiny
from tests.sessions import Session
from xfed import open_run, resume, run

PATIENCE = 120.0


def start(folder: Path, **changes: object) -> Session:
    (folder / "settings.yaml").write_text(yaml.safe_dump({**TINY, **changes}))
    return Session(["-m", "xfed", "run", "settings.yaml", "--out", "run"], cwd=folder)


def wait_for(session: Session, path: Path) -> None:
    assert session.wait_until(path.exists, PATIENCE), session.end(PATIENCE)


def test_ctrl_c_reaches_all_and_one_answers(tmp_path: Path) -> None:
    session = start(tmp_path, engine="processes", workers=2, rounds=500)
    wait_for(session, tmp_path / "run" / "checkpoints" / "round-000001")
    os.killpg(session.main.pid, signal.SIGINT)  # a terminal sends it to the workers too
    told = session.end(PATIENCE)
    assert session.main.returncode == 130
    assert told.strip().splitlines()[-1] == "xfed: interrupted; continue with 'xfed resume run'"
    assert not open_run(tmp_path / "run").finished


@pytest.mark.slow
@pytest.mark.parametrize("to", ["command", "everything"])
def test_terminated_with_everything_saved(tmp_path: Path, to: str) -> None:
    """What a batch system does: to the command (Kubernetes), or to every process of the job (Slurm)."""
    changes = {"rounds": 12, "checkpoint_every": 10, "eval_every": 1}
    session = start(tmp_path, engine="processes", workers=2, **changes)
    wait_for(session, tmp_path / "run" / "metrics" / "round-000003.parquet")
    session.processes()
    if to == "everything":
        os.killpg(session.main.pid, signal.SIGTERM)
    else:
        os.kill(session.main.pid, signal.SIGTERM)
    told = session.end(PATIENCE)
    assert session.main.returncode == 128 + signal.SIGTERM
    assert told.strip().splitlines()[-1] == "xfed: interrupted; continue with 'xfed resume run'"
    assert "Traceback" not in told
    assert session.wait_until_gone(PATIENCE), session.processes()
    assert session.segments() == []
    stopped = open_run(tmp_path / "run")
    saved = stopped.directory.checkpoints.rounds()
    assert len(saved) == 1
    assert saved[0] in (2, 3, 4, 5, 6, 7, 8, 9), "before its turn, so that no complete round is lost"
    assert len(stopped.records()) == saved[0]
    reference = run(tiny(out=tmp_path / "reference", **changes), progress=False)
    assert differences(reference, resume(tmp_path / "run", progress=False, engine="serial")) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_starting(tmp_path: Path, number: signal.Signals) -> None:
    """At many moments of the first seconds, most of which torch's import takes."""
    for delay in (0.3, 0.6, 1.0, 1.5, 2.2, 3.0):
        session = start(tmp_path, engine="processes", rounds=500)
        time.sleep(delay)
        os.kill(session.main.pid, number)
        told = session.end(PATIENCE)
        started = tmp_path / "run"
        if (session.main.returncode, told) == (-number, ""):  # on a crowded machine: before Python read a line of ours
            assert not started.exists()
            continue
        assert "Traceback" not in told, f"after {delay} s"
        assert session.main.returncode == 128 + number, f"after {delay} s: {told}"
        assert told.strip().splitlines()[-1].startswith("xfed: interrupted")
        if started.exists():
            started.rename(tmp_path / f"run-{delay}")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.2, 0.8])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_workers_start(tmp_path: Path, number: signal.Signals, delay: float) -> None:
    """A terminal sends Ctrl-C to the fork server too, which imports torch just then."""
    session = start(tmp_path, engine="processes", rounds=500)
    assert session.wait_until(lambda: session.fork_server() is not None, PATIENCE), session.end(PATIENCE)
    time.sleep(delay)
    session.processes()
    os.killpg(session.main.pid, number)
    assert session.wait_until_gone(PATIENCE), session.processes()
    told = [line for line in session.end(PATIENCE).splitlines() if line and ": round " not in line]
    assert told == ["xfed: interrupted; continue with 'xfed resume run'"]
    assert session.segments() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_when_all_is_done(number: signal.Signals) -> None:
    """While Python itself ends: nothing is left to save or to tell."""
    late = "import atexit, os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    late += "from xfed.cli import main; "
    late += f"atexit.register(lambda: os.kill(os.getpid(), {int(number)})); main(['--version'])"
    ended = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-number, "")
    assert ended.stdout.startswith("xfed ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_torch_is_half_imported(tmp_path: Path, number: signal.Signals) -> None:
    """No exception may reach it: its C++ would abort. The stand-in ends with another code if one does."""
    (tmp_path / "torch.py").write_text(
        f"import os\ntry:\n    os.kill(os.getpid(), {int(number)})\nexcept BaseException:\n    os._exit(77)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # a shell's & turns it off
    command = [sys.executable, "-c", listening + "from xfed.cli import main; main(['run'])"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (128 + number, "xfed: interrupted\n")
