"""Serving as a device gets it: the runtime's wheel with its extra, in an environment without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.deployed import Deployed
from tests.serving.served import started
from xfed_runtime import Policy

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_device_serves_without_torch(deployed: Deployed, tmp_path: Path) -> None:
    def call(*command: str | Path) -> str:
        given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [str(part) for part in command], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT / "runtime")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    call(sys.executable, "-m", "venv", tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[serve]")
    installed = call(python, "-m", "pip", "list", "--format", "freeze").lower()
    assert not [line for line in installed.splitlines() if line.split("==")[0] in ("torch", "xfed", "onnx", "scipy")]

    command = python.with_name("xfed-runtime-serve")
    with started(command, deployed.path, "--port", "0", "--client", "3", PYTHONPATH="") as server:
        caller = server.caller
        pixels = deployed.dataset.inputs[:5].numpy()
        policy = Policy("margin", threshold=0.1, answer="running")
        got = caller.predict(inputs=pixels.tolist(), policy=policy.to_json())["answers"]
        wanted = deployed.bundle().runtime(3).predict(pixels, policy)
        np.testing.assert_allclose([each["probabilities"] for each in got], wanted.probabilities, atol=1e-6)
        for path, part in (("/", "Ask an early-exit network"), ("/docs", "Interface"), ("/style.css", "--ground")):
            assert part in caller.call("GET", path)[1]
        assert json.loads(caller.call("GET", "/ready")[1])["status"] == "ready"
        server.end()
    assert server.process.returncode == 0
