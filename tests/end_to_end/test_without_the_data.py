"""A run directory, copied to where the raw data never was, is enough to calibrate, export, verify and serve."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import tiny
from xfed import run


@pytest.mark.slow
def test_from_a_copied_run_to_answers(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (240, 1, 8, 8), dtype=np.uint8)
    np.savez(here / "mine.npz", x=images, y=np.arange(240) % 3)
    settings = {"dataset": "npz", "npz": {"path": str(here / "mine.npz")}, "clients": 3, "rounds": 2}
    run(tiny(out=here / "run", **settings), progress=False)
    (here / "mine.npz").unlink()
    os.rename(here / "run", there / "run")
    environment = {**os.environ, "XFED_DATA": str(tmp_path / "nowhere"), "HOME": str(there), "PYTHONUNBUFFERED": "1"}
    environment["XDG_CACHE_HOME"] = str(there / "cache")

    def xfed(*arguments: str) -> str:
        command = [sys.executable, "-m", "xfed", *arguments]
        done = subprocess.run(command, cwd=there, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "test: reported" in xfed("calibrate", "run", "--budget", "70%")
    xfed("export", "run", "--clients", "0,2", "-o", "bundle")
    assert "what comes after an exit is not computed" in xfed("verify", "bundle")
    assert "what comes after an exit is not computed" in xfed("verify", "bundle", "--run", "run")
    assert "finished" in xfed("show", "run")
    command = [sys.executable, "-m", "xfed", "serve", "bundle", "--port", "0", "--client", "2"]
    server = subprocess.Popen(command, cwd=there, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert match
        body = json.dumps({"inputs": images[:2].tolist()}).encode()
        request = urllib.request.Request(f"{match[0]}/predict", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert len(json.load(answer)["answers"]) == 2
    finally:
        server.terminate()
        server.communicate(timeout=60)
