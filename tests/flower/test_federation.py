"""Real SuperLinks and SuperNodes on loopback: same bits, faults, security, traffic. All processes end by their ids."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from tests.bits import spy
from tests.conftest import tiny
from tests.flower.local import CLIENTS
from tests.flower.test_server_app import same_tensors
from tests.sessions import in_session
from xfed import Run, open_run, run
from xfed.cli import execute
from xfed.errors import ClientError
from xfed.flower.demo import Demo
from xfed.flower.keys import make_keys
from xfed.flower.processes import Programs, free_port
from xfed.flower.project import write_project
from xfed.runs.store import ClientStore

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "epochs": 1,
    "batch-size": 16,
    "lr": 0.05,
    "sample": 1.0,
    "eval-every": 2,
    "convnet.width": 4,
    "federation.timeout": 240.0,
}
DATA = {"alpha": 1.0, "seed": 1}
PATIENCE = 900.0


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    made: list[Demo] = []

    def make(clients: int = CLIENTS, secure: bool = False, **settings: Any) -> Demo:
        made.append(Demo(tmp_path / "demo", clients, secure, {**SETTINGS, **settings}, DATA).__enter__())
        return made[-1]

    yield make
    for each in made:
        each.__exit__()


def until(true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.2)
    return found


def rounds_done(path: Path) -> int:
    return len(open_run(path).records()) if (path / "settings.yaml").is_file() else 0


def log(demo: Demo, name: str) -> str:
    return (demo.folder / "logs" / f"{name}.log").read_text(errors="replace")


@pytest.mark.long
def test_four_methods_end_with_the_bits_of_serial(demo: Callable[..., Demo], tmp_path: Path) -> None:
    federation = demo()
    federation.start()
    for method in ("xfed", "fedper", "ditto", "fedpac"):
        federation.app, federation.out = tmp_path / f"app-{method}", tmp_path / f"far-{method}"
        settings = {**SETTINGS, "method": method, "clients": CLIENTS, "federation.min-nodes": CLIENTS}
        write_project(federation.app, federation.out, settings)
        federation.submit()
        far = federation.wait(PATIENCE)
        values = {name: far.experiment.training.model_dump()[name] for name in ("rounds", "sample")}
        near = run(tiny(out=tmp_path / f"near-{method}", method=method, clients=CLIENTS, **values), progress=False)
        ours, theirs = far.directory.checkpoints.read(), near.directory.checkpoints.read()
        assert same_tensors(ours.tensors, theirs.tensors), method
        assert ours.client_versions == theirs.client_versions
        name = _federation(far)
        for client, version in theirs.client_versions.items():
            kept = ClientStore(near.directory.client_states).read(client, version)
            there = ClientStore(federation.node(client) / "federations" / name / "state").read(client, version)
            assert same_tensors(there, kept), (method, client)


def _federation(finished: Run) -> str:
    return str(json.loads((finished.path / "roster.json").read_text())["federation"])


def test_a_run_that_the_server_refuses_ends_with_its_sentence(
    demo: Callable[..., Demo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xfed.flower.demo.ASK_SECONDS", 2.0)
    federation = demo(clients=2)
    project = federation.app / "pyproject.toml"
    project.write_text(project.read_text().replace('"xfed"', '"fedavgg"'))
    federation.start_server()
    federation.submit()
    with pytest.raises(ClientError, match=r"finished:failed: .*'fedavgg'.*fedavg"):
        federation.wait(60)


@pytest.mark.long
def test_a_node_killed_in_a_round_comes_back_with_its_state(demo: Callable[..., Demo]) -> None:
    federation = demo(clients=3, rounds=7, method="fedper", **{"federation.min-nodes": 2})
    federation.start()
    federation.submit()
    until(lambda: rounds_done(federation.out) >= 1, "round 1")
    until(lambda: log(federation, "node-2").count("Receiving: train") >= 2, "a task of round 2")
    federation.programs.end("node-2", signal.SIGKILL)
    until(lambda: any(2 in record.failed for record in open_run(federation.out).records()), "the round without it")
    _start_again(federation, 2)
    finished = federation.wait(PATIENCE)
    records = {record.round: record for record in finished.records()}
    [lost] = [record for record in records.values() if record.failed]
    assert (lost.failed, lost.replies) == ((2,), 2)
    again = [round for round, cohort in _cohorts(finished).items() if 2 in cohort and round > lost.round]
    assert again, "it never took part again"
    assert records[again[0]].replies == 3, "from the state it had: a node that lacks the version asked for fails"
    assert finished.directory.checkpoints.read().client_versions[2] == again[-1]


def _cohorts(finished: Run) -> dict[int, list[int]]:
    noted = json.loads((finished.path / "roster.json").read_text())["cohorts"]
    return {int(round): cohort for round, cohort in noted.items()}


def _start_again(federation: Demo, number: int) -> None:
    """Start a node until the SuperLink takes it: right after a crash it refuses the same node for a while."""
    for _ in range(20):
        started = federation.start_node(number)
        time.sleep(8)
        if started.poll() is None:
            return
        federation.programs.running.pop(f"node-{number}")
    pytest.fail("the node was never taken again")


def test_the_superlink_is_killed_and_the_run_continues(demo: Callable[..., Demo]) -> None:
    federation = demo(clients=2, rounds=2, method="xfed")
    federation.start()
    federation.submit()
    until(lambda: rounds_done(federation.out) >= 1, "round 1")
    federation.programs.end("superlink", signal.SIGKILL)
    assert not open_run(federation.out).finished
    federation.start_server()
    federation.submit()
    finished = federation.wait(PATIENCE)
    assert [record.round for record in finished.records()] == [1, 2]
    near = run(tiny(out=federation.folder / "near", method="xfed", clients=2, rounds=2, sample=1.0), progress=False)
    assert same_tensors(finished.directory.checkpoints.read().tensors, near.directory.checkpoints.read().tensors)


@pytest.mark.long
def test_strangers_are_refused(demo: Callable[..., Demo], tmp_path: Path) -> None:
    """Each refusal beside a control that differs in the one thing that is to be refused, and is taken."""
    federation = demo(clients=2, secure=True)
    assert federation.keys is not None
    federation.start_server()

    def seen(text: str) -> int:
        return log(federation, "superlink").count(text)

    def activated(nodes: int) -> None:
        until(lambda: seen("Activated node_id") == nodes, f"{nodes} nodes are in", 120)

    federation.start_node(0)
    until(lambda: seen('activate-node HTTP/1.1" 412'), "an unregistered key is refused", 120)
    assert seen("Activated node_id") == 0
    federation.programs.end("node-0")
    federation.register(0)
    federation.start_node(0)
    activated(1)

    authority = str(federation.keys / "ca.crt")
    address = ["--superlink", f"127.0.0.1:{federation.port}", "--port", str(free_port())]
    federation.programs.start("keyless", "flower-supernode", "--root-certificates", authority, *address)
    until(lambda: seen('register-node HTTP/1.1" 412'), "no key is refused", 120)
    assert seen("Activated node_id") == 1

    make_keys(tmp_path / "strange", ["127.0.0.1"], [])
    shutil.copy(federation.keys / "node-1", tmp_path / "strange" / "node-1")
    federation.register(1)
    deceived = federation.start_node(1, tmp_path / "strange")
    until(lambda: deceived.poll() is not None, "a server of another authority is refused", 180)
    assert deceived.returncode != 0
    assert seen("Activated node_id") == 1
    federation.programs.end("node-1")
    federation.start_node(1)
    activated(2)


@pytest.mark.long
def test_traffic_is_what_flower_counts(demo: Callable[..., Demo]) -> None:
    rounds = {"rounds": 6, "eval-every": 6}  # joining and evaluation are not what a round moves
    federation = demo(clients=2, method="xfed", **rounds, **{"convnet.width": 32})
    federation.start()
    federation.submit()
    finished = federation.wait(PATIENCE)
    with sqlite3.connect(federation.folder / "superlink.db") as database:
        [(to_nodes, from_nodes)] = database.execute("select bytes_sent, bytes_recv from run").fetchall()
    counted = json.loads((finished.path / "traffic.json").read_text())
    assert to_nodes == pytest.approx(counted["down"], rel=0.05)
    assert from_nodes == pytest.approx(counted["up"], rel=0.05)


def test_the_demo_leaves_a_report_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = spy(monkeypatch, Programs, "start")
    options = ["--clients", "2", "--rounds", "1", "--secure", "--out", str(tmp_path / "demo")]
    assert execute(["flower", "demo", *options]) == 0
    assert "round 1 of 1: 2 of 2 clients" in capsys.readouterr().out
    assert (tmp_path / "demo" / "report.html").stat().st_size > 100_000
    assert len(started) == 3
    until(lambda: not any(in_session(process.pid) for process in started), "the end of every process", 10)
