"""A node at home: its settings, its state, and the model it takes home."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from tests.data.published import jpeg, write_folder
from tests.flower.local import CONFIG, LocalGrid, make_nodes
from xfed import InputError
from xfed.cli import execute
from xfed.flower.node import Node
from xfed.flower.own_run import own_run
from xfed.flower.server_app import conduct
from xfed.protocol.message import Message, WireError
from xfed.protocol.words import Failed, TrainTask
from xfed_runtime import Bundle


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Nodes after a federation of three rounds."""
    config = {**CONFIG, "rounds": 3, "sample": 1.0, "federation.out": str(tmp_path / "run")}
    conduct(LocalGrid(make_nodes(tmp_path)), config)  # type: ignore[arg-type]
    return tmp_path


def test_a_node_takes_its_own_model_home(trained: Path) -> None:
    assert execute(["flower", "export", str(trained / "2"), "--budget", "80%", "-o", str(trained / "bundle")]) == 0
    bundle = Bundle.open(trained / "bundle")
    assert list(bundle.clients) == [2]
    run, client = own_run(Node.open(trained / "2"))
    assert client == 2
    network = run.model(2)
    trace = run.trace("test")
    assert trace is not None
    dataset, split = Node.open(trained / "2").samples
    with torch.no_grad():
        logits = network(dataset.normalise(dataset.inputs[split.test])).logits[len(network.exits) - 1]
    right = (logits.argmax(1) == dataset.labels[split.test]).sum()
    assert run.clients()[f"exit {len(network.exits)}"].item() == pytest.approx(int(right) / len(split.test))


def test_the_state_stays_and_old_versions_go(trained: Path) -> None:
    node = Node.open(trained / "1")
    [federation] = node.federations()
    kept = sorted(path.name for path in (node.home(federation) / "state" / "000").iterdir())
    assert kept == [f"000001-{version:06d}.safetensors" for version in (1, 2, 3)]
    gone = node.answer(federation, TrainTask(1, 9, Message(), 7))
    assert gone == Failed(1, "has no state of round 7")


def test_a_task_of_a_federation_that_the_node_never_joined(trained: Path) -> None:
    answer = Node.open(trained / "1").answer("elsewhere", TrainTask(1, 1, Message(), None))
    assert isinstance(answer, Failed)
    assert "never briefed" in answer.reason


def test_a_federation_cannot_name_any_folder(tmp_path: Path) -> None:
    node = Node.open(make_nodes(tmp_path, [0])[1000])
    for name in ("../up", "", "a/b", "x" * 65):
        with pytest.raises(WireError, match="a federation called"):
            node.home(name)


def test_before_the_end_there_is_nothing_to_take_home(tmp_path: Path) -> None:
    make_nodes(tmp_path, [0])
    with pytest.raises(InputError, match=r"took no part in federation None; it has: none"):
        own_run(Node.open(tmp_path / "0"))


LOADER = '''
import torch
from xfed.data.dataset import Dataset, dataset


@dataset("steps")
def steps() -> Dataset:
    """Dark and light pictures."""
    labels = torch.arange(20) % 2
    images = (labels * 200).to(torch.uint8)[:, None, None, None].expand(20, 1, 8, 8).contiguous()
    return Dataset("steps", images, labels, classes=("dark", "light"))
'''
CLASSES = {"npz": 3, "folder": 2, "steps": 2}


@pytest.mark.parametrize("dataset", CLASSES)
def test_data_in_the_nodes_own_folder(tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "home"
    data = {
        "npz": {"npz": {"path": "own.npz"}},
        "folder": {"folder": {"path": "pictures"}},
        "steps": {"plugin": "loader.py"},
    }[dataset]
    nodes = make_nodes(home, [0], data={"dataset": dataset, **data})
    np.savez(home / "0" / "own.npz", x=np.zeros((30, 8, 8), np.uint8), y=np.arange(30) % 3)
    pictures = {f"{letter}/{n}.png": jpeg((n, 0, 0), (8, 8), "PNG") for letter in "ab" for n in range(10)}
    write_folder(home / "0" / "pictures", pictures)
    (home / "0" / "loader.py").write_text(LOADER)
    node = Node.open(nodes[1000])
    introduction = node.introduce("here")
    assert len(introduction.card["classes"]) == CLASSES[dataset]
    assert sum(introduction.sizes) == (30 if dataset == "npz" else 20)
    assert not any(str(home) in str(value) for value in introduction.card.values()), "no path leaves the node"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("client: -1", r"node.client is -1"),
        ("colour: red", r"unknown setting 'node.colour'"),
        ("noise: 1.0", r"give clip too"),
        ("[]", r"must hold 'key: value' lines"),
        ("a: [", r"is not YAML"),
    ],
)
def test_settings_of_a_node(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "node.yaml").write_text(text)
    with pytest.raises(InputError, match=reason):
        Node.open(tmp_path)


def test_a_node_beyond_the_data(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path, [0], client=4)
    with pytest.raises(InputError, match=r"node.client is 4; the data has clients 0 to 3"):
        _ = Node.open(nodes[1000]).samples
