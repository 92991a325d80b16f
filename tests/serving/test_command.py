"""The command that serves a bundle."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.serving.served import started
from xfed.cli import execute
from xfed_runtime.serving.command import main


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
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_until_interrupted(deployed: Deployed, tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "copies").mkdir()
    device = tmp_path / "device.json"
    table = {"exits_ms": [1.0, 2.0, 3.0], "exits_cpu_ms": [1.0, 2.0, 3.0], "repetitions": 1}
    device.write_text(json.dumps({"device": "d", "runtime": "r", "threads": 1, **table}))
    command = [sys.executable, "-m", "xfed", "serve", str(deployed.path), "--port", "0", "--client", "3"]
    limits = ["--device", str(device), "--max-body", "300"]
    with started(*command, *limits, TMPDIR=str(tmp_path / "copies")) as server:
        assert server.line.startswith(f"serving {deployed.path} on http://127.0.0.1:")
        answers = server.caller.predict(inputs=[[[[0] * 8] * 8]], deadline_ms=1e6)["answers"]
        assert answers[0]["exit"] == 3
        assert server.caller.call("POST", "/predict", " " * 301)[0] == 413
        assert list((tmp_path / "copies").glob("xfed-serve-*"))
        out, err = server.end(end)
    assert (server.process.returncode, out, err) == (0, "stopped\n", "")
    assert list((tmp_path / "copies").glob("xfed-serve-*")) == [], "the copy of the bundle is gone"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--batch-wait-ms", "-1"], "--batch-wait-ms is '-1'; allowed: 0 to 1000"),
        (["--threads", "none"], "--threads is 'none'; allowed: whole numbers from 1"),
        (["--tls-cert", "cert.pem"], "TLS needs both --tls-cert and --tls-key"),
        (
            ["--tls-cert", "cert.pem", "--tls-key", "key.pem"],
            "certificate 'cert.pem' with key 'key.pem' cannot be used",
        ),
        (["--token-file", "none"], "token file 'none' cannot be read"),
        (["--digest", "0" * 64], "has the digest"),
        (["--provider", "AbacusExecutionProvider"], "has no execution provider 'AbacusExecutionProvider' here"),
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
    ],
)
def test_the_runtimes_own_command_tells_the_same(
    deployed: Deployed, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    for program, run in (("xfed", lambda given: execute(["serve", *given])), ("xfed-runtime-serve", main)):
        assert run([str(deployed.path), "--port", "0", *arguments]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"{program}: ")
        assert sentence in told
        assert len(told.splitlines()) == 1


def test_help_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    assert execute(["serve", "--help"]) == 0
    shown.append(capsys.readouterr().out.partition("options:")[2].split())
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown.append(capsys.readouterr().out.partition("options:")[2].split())
    assert shown[0] == shown[1]
    assert "--token-file" in shown[0]
