"""What leaves a client: declared fields and nothing else, on every engine; and no sample is in what is passed on.

Samples are random numbers that occur nowhere else, so that any of them would be recognised by its bytes.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.algorithms.test_methods import ALL
from tests.conftest import tiny
from xfed import ClientError, Run, run
from xfed.cli import execute
from xfed.engines import ray as ray_engine
from xfed.engines.workers.mailbox import Inbox
from xfed.federation.host import Host
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.uploads import Uploads
from xfed.protocol.words import ClientState, Evaluated, Failed, Trained, Word, to_bytes
from xfed.report.page.build import page

SAMPLES, CLIENTS, EXITS = 120, 3, 3
DECLARED = {
    Trained: {"client", "upload", "loss", "macs", "remembers"},
    Evaluated: {"client", "samples", "correct", "macs", "alone", "traces", "own", "shared", "metrics"},
    Failed: {"client", "reason", "failure"},
    ClientState: {"client", "version", "tensors"},
}
VALUES = {"samples"}


@dataclass
class Wire:
    """Everything that came from clients: the words, and the bytes they came in."""

    words: list[Word] = field(default_factory=list)
    content: bytearray = field(default_factory=bytearray)

    def take(self, words: list[Word], *content: bytes) -> None:
        self.words += words
        for each in content:
            self.content += each

    def of(self, kind: type[Word]) -> list[Any]:
        return [word for word in self.words if type(word) is kind]


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    return np.random.default_rng(7).normal(size=(SAMPLES, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def samples(inputs: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("marked") / "marked.npz"
    np.savez(path, x=inputs, y=np.arange(SAMPLES) % 4)
    return path


def found_in(content: bytes, inputs: np.ndarray) -> list[int]:
    """Number the samples of which four pixels in a row are there, at the start, in the middle or at the end."""
    rows = [row.tobytes() for row in inputs]
    return [n for n, row in enumerate(rows) if any(row[at : at + 16] in content for at in (0, 128, len(row) - 16))]


def written_in(text: str, inputs: np.ndarray) -> list[int]:
    """Number the samples of which a pixel stands there in digits."""
    return [n for n, row in enumerate(inputs) if any(f"{abs(pixel):.12f}"[:9] in text for pixel in row.ravel()[:8])]


def test_a_sample_would_be_found(inputs: np.ndarray) -> None:
    assert found_in(b"before" + inputs[5].tobytes() + b"after", inputs) == [5]
    assert written_in(json.dumps(inputs[7].tolist()), inputs) == [7]
    assert found_in(os.urandom(100_000), inputs) == []


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of tensors that the method says it takes from clients, as the loop asks for them."""
    names: set[str] = set()
    expect = Algorithm.expect

    def watched(*arguments: Any) -> Uploads:
        uploads = expect(*arguments)
        names.update(uploads._averaged | uploads._collected)
        return uploads

    monkeypatch.setattr(Algorithm, "expect", watched)
    return names


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Listen to all engines of this process: each has one place where words come in."""
    heard = Wire()
    train, evaluate, read, unframe = Host.train, Host.evaluate, Inbox.read, ray_engine.unframe

    def serial_train(host: Host, *arguments: Any) -> Any:
        trained, state = train(host, *arguments)
        heard.take([trained], to_bytes([trained]))
        return trained, state

    def serial_evaluate(host: Host, *arguments: Any) -> Any:
        words = evaluate(host, *arguments)
        heard.take(list(words), to_bytes(words))
        return words

    def from_process(inbox: Inbox, letter: bytes, copy: bool = False) -> list[Word]:
        words = read(inbox, letter, copy)
        assert inbox._segment is not None
        heard.take(words, letter, bytes(inbox._segment.buf))
        return words

    def from_ray(plain: Any, tensors: Any) -> list[Word]:
        words = unframe(plain, tensors)
        heard.take(words, json.dumps(plain).encode(), *(tensor.numpy().tobytes() for tensor in tensors))
        return words

    monkeypatch.setattr(Host, "train", serial_train)
    monkeypatch.setattr(Host, "evaluate", serial_evaluate)
    monkeypatch.setattr(Inbox, "read", from_process)
    monkeypatch.setattr(ray_engine, "unframe", from_ray)
    return heard


@pytest.fixture
def carry_out(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def carry_out(**changes: Any) -> Run:
        values = {"dataset": "npz", "npz": {"path": samples}, "clients": CLIENTS, "sample": 1.0, "rounds": 2, **changes}
        return run(tiny(out=tmp_path / "run", **values), progress=False)

    return carry_out


def check(wire: Wire, declared: set[str], inputs: np.ndarray, traces: bool = True) -> None:
    assert {type(word) for word in wire.words} <= DECLARED.keys()
    for word in wire.words:
        assert {each.name for each in fields(word)} == DECLARED[type(word)]
    trained, evaluated = wire.of(Trained), wire.of(Evaluated)
    assert len(trained) == 2 * CLIENTS
    assert len(evaluated) >= CLIENTS
    for word in trained:
        assert {name.partition(".")[0] for name in word.upload.tensors} <= {n.partition(".")[0] for n in declared}
        assert word.upload.values.keys() <= VALUES
    for word in evaluated:
        assert word.metrics == {}, "none was asked for"
        assert all(len(counts) == EXITS for counts in word.correct.values())
        assert word.traces.keys() <= ({"test", "calibration"} if traces else set())
    assert len(wire.content) > 10_000
    assert found_in(bytes(wire.content), inputs) == []


@pytest.mark.parametrize("method", ALL)
def test_every_method_sends_what_it_declared(
    carry_out: Callable[..., Run], wire: Wire, declared: set[str], inputs: np.ndarray, method: str
) -> None:
    carry_out(method=method)
    check(wire, declared, inputs)


@pytest.mark.parametrize("traces", [True, False])
def test_worker_processes(
    carry_out: Callable[..., Run], wire: Wire, declared: set[str], inputs: np.ndarray, traces: bool
) -> None:
    """Also in what lies in shared memory around the words."""
    carry_out(engine="processes", workers=1, traces=traces)
    check(wire, declared, inputs, traces)
    assert len(wire.of(ClientState)) == 2 * CLIENTS, "the client's own exits, which a simulation keeps here"


@pytest.mark.slow
def test_a_ray_cluster(
    carry_out: Callable[..., Run], wire: Wire, declared: set[str], inputs: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    carry_out(engine="ray", workers=1)
    check(wire, declared, inputs)


def test_flower_nodes(
    samples: Path, inputs: np.ndarray, declared: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node says when it joins, and every answer after that: no state, and no trace unless its owner agrees."""
    pytest.importorskip("flwr")
    from tests.flower.local import CONFIG, LocalGrid, make_nodes
    from xfed.flower.node import Introduction
    from xfed.flower.server_app import conduct
    from xfed.flower.wire import from_records

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    heard, joined = Wire(), []

    def listen(message: Any, reply: Any) -> Any:
        said = dict(reply.content.config_records["xfed"])
        arrays = [array.data for record in reply.content.array_records.values() for array in record.values()]
        federation = str(message.content.config_records["xfed"]["federation"])
        words = from_records(reply.content, federation) if "words" in said else []
        if not words:
            joined.append(said)
        heard.take(words, json.dumps(said).encode(), *arrays)
        return reply

    data = {"dataset": "npz", "npz.path": str(samples), "clients": CLIENTS, "alpha": 1.0, "seed": 1}
    nodes = make_nodes(tmp_path / "nodes", range(CLIENTS), data=data)
    config = {**CONFIG, "clients": CLIENTS, "sample": 1.0, "federation.min-nodes": CLIENTS}
    conduct(LocalGrid(nodes, listen), {**config, "federation.out": str(tmp_path / "run")})  # type: ignore[arg-type]
    check(heard, declared, inputs, traces=False)
    assert heard.of(ClientState) == []
    assert all(word.own is None for word in heard.of(Evaluated))
    allowed = {each.name for each in fields(Introduction)} | {"federation", "introduction"}
    assert joined
    for said in joined:
        inner = json.loads(said["introduction"]) if "introduction" in said else {}
        assert (said.keys() | inner.keys()) <= allowed
    assert written_in(bytes(heard.content).decode("latin1"), inputs) == []


LEAKING = '''
from xfed.algorithms.fedper import FedPer
from xfed.protocol.algorithm import method


@method("leaking")
class Leaking(FedPer):
    """FedPer that sends its samples along."""

    def train(self, client, received):
        first = next(iter(client.data.train.in_order(1000)))
        return super().train(client, received).having({"besides": first.inputs})
'''


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_method_that_sends_samples_is_seen_and_refused(
    carry_out: Callable[..., Run], wire: Wire, inputs: np.ndarray, tmp_path: Path, engine: str
) -> None:
    plugin = tmp_path / "leaking.py"
    plugin.write_text(LEAKING)
    with pytest.raises(ClientError, match=r"its upload holds 'besides', which the method never declared"):
        carry_out(method="leaking", plugin=plugin, engine=engine, workers=1)
    assert len(found_in(bytes(wire.content), inputs)) > 10


def everything_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()


def test_no_sample_in_a_run_and_its_page(carry_out: Callable[..., Run], inputs: np.ndarray) -> None:
    made = carry_out()
    for name, content in everything_in(made.path):
        assert found_in(content, inputs) == [], name
    text = page([made])
    block = gzip.decompress(base64.b64decode(re.search(r'id="block">(.*?)</script>', text)[1]))  # type: ignore[index]
    assert found_in(block, inputs) == []
    assert written_in(text, inputs) == []


@pytest.mark.slow
def test_no_sample_in_a_bundle(carry_out: Callable[..., Run], inputs: np.ndarray, tmp_path: Path) -> None:
    made = carry_out()
    assert execute(["calibrate", str(made.path), "--budget", "70%"]) == 0
    assert execute(["export", str(made.path), "-o", str(tmp_path / "bundle")]) == 0
    files = dict(everything_in(tmp_path / "bundle"))
    assert len(files) > 5
    for name, content in files.items():
        assert found_in(content, inputs) == [], name
        assert written_in(content.decode("latin1"), inputs) == [], name
