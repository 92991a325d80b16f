"""Ctrl-C: the run stops at once, says how to go on, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.conftest import TINY
from xfed import open_run, resume


def test_interrupted_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(
        yaml.safe_dump({**TINY, "engine": "processes", "workers": 2, "rounds": 500})
    )
    command = [sys.executable, "-m", "xfed", "run", "settings.yaml", "--out", "run"]
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run" / "checkpoints").glob("round-*")):
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline, "no checkpoint in two minutes"
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)  # a terminal sends it to the workers too
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert told.strip().splitlines()[-1] == "xfed: interrupted; continue with 'xfed resume run'"
    stopped = open_run(tmp_path / "run")
    assert not stopped.finished
    done = stopped.directory.checkpoints.rounds()[-1]
    (tmp_path / "run" / "settings.yaml").write_text(
        (tmp_path / "run" / "settings.yaml").read_text().replace("rounds: 500", f"rounds: {done + 1}")
    )
    assert resume(tmp_path / "run", progress=False, engine="serial").records()[-1].round == done + 1
