"""The server's loop over a Grid: the bits of `serial`, nodes that come, go and misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Error, Message, RecordDict

from tests.conftest import tiny
from tests.flower.local import CLIENTS, CONFIG, LocalGrid, make_nodes
from xfed import InputError, Run, open_run, run
from xfed.cli import execute
from xfed.errors import ClientError
from xfed.flower.intake import REFUSED
from xfed.flower.server_app import conduct, settings_from
from xfed.flower.wire import from_records, to_records
from xfed.protocol.algorithm import methods
from xfed.protocol.words import Trained
from xfed.runs.store import ClientStore


@pytest.fixture
def federate(tmp_path: Path) -> Callable[..., Run]:
    def carry_out(grid: LocalGrid, name: str = "run", **changes: Any) -> Run:
        return conduct(grid, {**CONFIG, "federation.out": str(tmp_path / name), **changes})  # type: ignore[arg-type]

    return carry_out


def same_tensors(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def personal_state(node: Path, client: int, version: int) -> dict[str, torch.Tensor]:
    [home] = (node / "federations").iterdir()
    return ClientStore(home / "state").read(client, version)


def changed_upload(client: int, change: Callable[[Trained], Any]) -> Callable[[Message, Message], Message]:
    """Replace one client's training reply in round 1 by what `change` makes of it."""

    def meddle(message: Message, reply: Message) -> Message:
        federation = str(message.content.config_records["xfed"]["federation"])
        if message.metadata.message_type != "train" or message.metadata.group_id != "1":
            return reply
        [word] = from_records(reply.content, federation)
        if word.client != client:  # type: ignore[attr-defined]
            return reply
        made = change(word)  # type: ignore[arg-type]
        if isinstance(made, Error):
            return Message(made, reply_to=message)
        records = made if isinstance(made, RecordDict) else to_records(federation, [made])
        return Message(records, reply_to=message)

    return meddle


QUICK = {"xfed", "fedper", "ditto", "fedpac"}
EVERY = [
    pytest.param(each.name, marks=[] if each.name in QUICK else pytest.mark.slow)
    for each in sorted(methods, key=lambda each: each.name)
    if each.__module__.startswith("xfed.")
]


@pytest.mark.parametrize("method", EVERY)
def test_the_bits_of_serial(federate: Callable[..., Run], tmp_path: Path, method: str) -> None:
    far = federate(LocalGrid(make_nodes(tmp_path)), method=method)
    near = run(tiny(out=tmp_path / "serial", method=method, rounds=2, clients=CLIENTS), progress=False)
    theirs, ours = near.directory.checkpoints.read(), far.directory.checkpoints.read()
    assert same_tensors(ours.tensors, theirs.tensors)
    assert ours.client_versions == theirs.client_versions
    for client, version in theirs.client_versions.items():
        kept = ClientStore(near.directory.client_states).read(client, version)
        assert same_tensors(personal_state(tmp_path / str(client), client, version), kept)
    assert [r.bytes_up for r in far.records()] == [r.bytes_up for r in near.records()]
    assert [r.bytes_down for r in far.records()] == [r.bytes_down for r in near.records()]
    assert [e.mean for e in far.evaluations()] == pytest.approx([e.mean for e in near.evaluations()])


def test_counts_leave_a_node_traces_and_models_do_not(federate: Callable[..., Run], tmp_path: Path) -> None:
    done = federate(LocalGrid(make_nodes(tmp_path)))
    assert execute(["show", str(done.path)]) == 0
    assert execute(["report", str(done.path), "-o", str(tmp_path / "report.html")]) == 0
    assert done.trace("test") is None
    assert list(done.directory.models.glob("*")) == []
    assert len(done.clients()) == CLIENTS
    allowed = federate(LocalGrid(make_nodes(tmp_path / "open", traces=True, model=True)), "open")
    assert allowed.trace("test") is not None
    assert allowed.model(2) is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda t: Trained(
                t.client, t.upload.having({"backbone": t.upload.tensors["backbone"] * float("nan")}), 0.0, 0, True
            ),
            "not finite",
        ),
        (lambda t: Trained(t.client, t.upload.having({"backbone": torch.zeros(3)}), 0.0, 0, True), "has shape (3,)"),
        (lambda t: Trained(t.client + 1, t.upload, 0.0, 0, True), "is not one to its task"),
        (lambda t: to_records("another", [t]), "a message of federation 'another'"),
        (lambda t: Trained(t.client, t.upload.having({"backbone": torch.zeros(2**21)}), 0.0, 0, True), "are allowed"),
        (lambda t: Error(3, f"no objects: {REFUSED}more than 9 bytes"), "was rejected: it sent more than 9 bytes"),
    ],
    ids=["NaN", "wrong shape", "another client", "another run", "too large", "too large to be pulled"],
)
def test_a_client_that_misbehaves_is_rejected_by_name(
    federate: Callable[..., Run], tmp_path: Path, change: Callable[[Trained], Any], reason: str
) -> None:
    grid = LocalGrid(make_nodes(tmp_path), changed_upload(1, change))
    done = federate(grid, sample=1.0, method="fedper")
    first, second = done.records()
    assert (first.failed, first.replies) == ((1,), 3)
    assert reason in first.reasons[0]
    assert (second.failed, second.replies) == ((), 4)
    assert personal_state(tmp_path / "1", 1, 2), "it took part again, from the state it had"


def test_nodes_that_join_leave_and_come_back(federate: Callable[..., Run], tmp_path: Path) -> None:
    grid = LocalGrid(make_nodes(tmp_path, range(2)))
    late = make_nodes(tmp_path, [2])
    leaving: dict[int, Path] = {}

    def meddle(message: Message, reply: Message) -> Message:
        kind, round = message.metadata.message_type, message.metadata.group_id
        if (kind, round) == ("evaluate", "1") and not leaving:
            grid.nodes.update(late)
        if (kind, round) == ("evaluate", "2") and 1000 in grid.nodes and len(grid.nodes) == 3:
            leaving[2000] = grid.nodes.pop(1000)
        if (kind, round) == ("evaluate", "3"):
            grid.nodes.update(leaving)  # under another number of Flower's: its own name counts
        return reply

    grid.meddle = meddle
    done = federate(grid, sample=1.0, rounds=4, method="fedper", **{"federation.min-nodes": 2})
    cohorts = [set(map(int, record)) for record in _cohorts(done)]
    assert cohorts == [{0, 1}, {0, 1, 2}, {1, 2}, {0, 1, 2}]
    assert [record.failed for record in done.records()] == [()] * 4
    assert done.directory.checkpoints.read().client_versions == {0: 4, 1: 4, 2: 4}
    assert done.clients()["client"].tolist() == [0, 1, 2]


def _cohorts(done: Run) -> list[list[int]]:
    return list(json.loads((done.path / "roster.json").read_text())["cohorts"].values())


def test_a_node_that_never_answers_is_waited_for_once_per_round(federate: Callable[..., Run], tmp_path: Path) -> None:
    grid = LocalGrid(make_nodes(tmp_path))

    def meddle(message: Message, reply: Message) -> Message | None:
        silent = message.metadata.message_type == "train" and message.metadata.dst_node_id == 1003
        return None if silent else reply

    grid.meddle = meddle
    done = federate(grid, sample=1.0, method="fedper", **{"federation.timeout": 2.0})
    assert [(r.replies, r.failed, r.reasons) for r in done.records()] == [(3, (3,), ("did not answer within 2 s",))] * 2


def test_a_server_that_dies_continues_from_its_last_round(federate: Callable[..., Run], tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path)
    calm = federate(LocalGrid(make_nodes(tmp_path / "calm")), "calm", rounds=3)

    def dies(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == "2":
            raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        federate(LocalGrid(nodes, dies), rounds=3)
    assert open_run(tmp_path / "run").directory.checkpoints.rounds() == [1]
    again = LocalGrid(nodes)
    resumed = federate(again, rounds=3)
    assert resumed.finished
    assert sum(message.metadata.message_type == "query" for message in again.pushed) == CLIENTS, "they know it already"
    assert same_tensors(resumed.directory.checkpoints.read().tensors, calm.directory.checkpoints.read().tensors)


def test_too_few_nodes(federate: Callable[..., Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 nodes are connected after 1 s, and federation.min-nodes is 2"):
        federate(LocalGrid(make_nodes(tmp_path, [0])))


def test_nodes_that_wait_for_others_are_asked_once(federate: Callable[..., Run], tmp_path: Path) -> None:
    grid = LocalGrid(make_nodes(tmp_path, [0]))
    late = make_nodes(tmp_path, [1])

    def meddle(message: Message, reply: Message) -> Message:
        grid.nodes.update(late)
        return reply

    grid.meddle = meddle
    federate(grid, rounds=1, method="fedper", **{"federation.wait": 60.0})
    asked = [m.metadata.dst_node_id for m in grid.pushed if m.metadata.message_type == "query"]
    assert asked == [1000, 1001, 1000, 1001], "who they are, one by one; then both are briefed"


def test_nodes_with_other_data_cannot_join(
    federate: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((40, 8, 8), dtype=np.uint8), y=np.arange(40) % 3)
    nodes = make_nodes(tmp_path, range(2))
    stranger = make_nodes(tmp_path, [5], data={"dataset": "npz", "npz": {"path": str(tmp_path / "own.npz")}}, client=0)
    grid = LocalGrid(nodes)

    def meddle(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            grid.nodes.update(stranger)
        return reply

    grid.meddle = meddle
    done = federate(grid, sample=1.0)
    assert [record.clients for record in done.records()] == [2, 2]
    assert "node 1005 cannot join: its data has other classes than the federation's" in capsys.readouterr().out


def test_plugins_of_the_server_need_the_owners_leave(federate: Callable[..., Run], tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from xfed import method\nfrom xfed.algorithms.fedper import FedPer\n\n\n"
        '@method("mine")\nclass Mine(FedPer):\n    """FedPer, from a file."""\n'
    )
    settings = {"method": "mine", "plugin": str(plugin)}
    with pytest.raises(ClientError, match=r"plug-in 'mine.py' is not run here: node.plugins is off"):
        federate(LocalGrid(make_nodes(tmp_path)), **settings)
    allowed = LocalGrid(make_nodes(tmp_path / "allowed", plugins=True))
    assert federate(allowed, "allowed", **settings).finished


def test_settings_of_the_app() -> None:
    experiment, settings = settings_from({**CONFIG, "federation.out": "here", "batch-size": 8, "method": "fedper"})
    assert (experiment.method, experiment.training.batch_size, settings.min_nodes) == ("fedper", 8, 2)
    with pytest.raises(InputError, match=r"federation.out is missing"):
        settings_from(CONFIG)
    with pytest.raises(InputError, match=r"unknown setting 'federation.timeuot'"):
        settings_from({**CONFIG, "federation.out": "here", "federation.timeuot": 3})
    with pytest.raises(InputError, match=r"checkpoint_every is 5, .* allowed with nodes: 1"):
        settings_from({**CONFIG, "federation.out": "here", "checkpoint-every": 5})


def test_xfed_costs_what_fedper_costs_and_one_exit(federate: Callable[..., Run], tmp_path: Path) -> None:
    settings = {"rounds": 1, "sample": 1.0, "convnet.width": 64}
    bytes_of = {}
    for method in ("xfed", "fedper"):
        done = federate(LocalGrid(make_nodes(tmp_path / method)), f"{method}-run", method=method, **settings)
        [record] = done.records()
        bytes_of[method] = (record.bytes_down / CLIENTS, record.bytes_up / CLIENTS)
    last_exit = 4 * sum(parameter.numel() for parameter in done.network().exits[-1].parameters())
    for ours, theirs in zip(bytes_of["xfed"], bytes_of["fedper"], strict=True):
        assert ours == pytest.approx(theirs + last_exit, rel=0.01)
        assert ours > theirs
