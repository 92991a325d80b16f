"""The command that serves a bundle."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.deployed import Deployed
from xfed.cli import execute


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--client", "7"], "the bundle has no client 7; it has: 0, 3-4"),
        (["--format", "onnx"], "the bundle has no format 'onnx'; it has: onnx-stages, onnx-if"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid port 8000"),
    ],
)
def test_bad_input(deployed: Deployed, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert execute(["serve", str(deployed.path), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_port_that_is_taken(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert execute(["serve", str(deployed.path), "--port", str(port)]) == 2
    assert f"xfed: cannot listen on 127.0.0.1 port {port}: " in capsys.readouterr().err


@pytest.mark.slow
def test_it_answers_until_interrupted(deployed: Deployed, tmp_path: Path) -> None:
    device = tmp_path / "device.json"
    table = {"exits_ms": [1.0, 2.0, 3.0], "exits_cpu_ms": [1.0, 2.0, 3.0], "repetitions": 1}
    device.write_text(json.dumps({"device": "d", "runtime": "r", "threads": 1, **table}))
    command = [sys.executable, "-m", "xfed", "serve", str(deployed.path), "--port", "0", "--client", "3"]
    server = subprocess.Popen(
        [*command, "--device", str(device), "--max-body", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        match = re.match(rf"serving {deployed.path} on (http://127\.0\.0\.1:\d+), ", line)
        assert match, line
        request = urllib.request.Request(
            f"{match[1]}/predict",
            json.dumps({"inputs": [[[[0] * 8] * 8]], "deadline_ms": 1e6}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["answers"][0]["exit"] == 3
        request.data = b" " * 301
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(request, timeout=60)
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    assert (server.returncode, out, err) == (0, "stopped\n", "")
