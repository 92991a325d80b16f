"""Bundles against PyTorch."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from tests.deployed import Deployed, deploy, random_clients
from xfed import Run
from xfed.data.dataset import Dataset, datasets
from xfed.data.raw.source import PublishedSource
from xfed.errors import InputError
from xfed.export import bundle as export
from xfed.export.bundle import OwnTensors
from xfed.models.resnet import ResNet18
from xfed.models.transformer import Transformer
from xfed_runtime import Policy
from xfed_runtime.answers import Answer, Answering, Signals, signals
from xfed_runtime.policy import Signal, simulate
from xfed_runtime.text import SPECIAL, Vocabulary

pytestmark = pytest.mark.slow  # converting a network takes seconds

FORMATS = ["onnx-stages", "onnx-if"]


def agrees(deployed: Deployed, raw: torch.Tensor, given: object = None) -> None:
    """Every client, format, exit and kind of answer within 1e-5 of PyTorch."""
    bundle = deployed.bundle()
    exits = len(bundle.macs)
    for client in (min(bundle.clients), max(bundle.clients)):
        wanted = [logits.numpy() for logits in deployed.logits(client, raw)]
        for format in bundle.formats:
            runtime = bundle.runtime(client, format)
            running = Answering("running")
            for index in range(exits):
                fixed = Policy("fixed", exit=index + 1)
                got = runtime.predict(raw.numpy() if given is None else given, fixed)
                assert got.exits.tolist() == [index] * len(raw)
                assert got.macs.tolist() == [bundle.macs[index]] * len(raw)
                np.testing.assert_allclose(got.logits, wanted[index], rtol=0, atol=1e-5)
                torch.testing.assert_close(
                    torch.from_numpy(got.probabilities), torch.from_numpy(wanted[index]).softmax(1), rtol=0, atol=1e-5
                )
                mean = runtime.predict(raw.numpy() if given is None else given, replace(fixed, answer="running"))
                np.testing.assert_allclose(mean.probabilities, running.add(wanted[index]), rtol=0, atol=1e-5)


def trace(probabilities: NDArray[np.float32]) -> Signals:
    """The signals of all exits (samples × exits × classes)."""
    found = signals(probabilities)
    return Signals(found.prediction, found.confidence, found.margin, found.entropy)


def test_same_logits_as_pytorch(deployed: Deployed) -> None:
    agrees(deployed, deployed.dataset.inputs[:7])


def test_clients_differ(deployed: Deployed) -> None:
    bundle, raw = deployed.bundle(), deployed.dataset.inputs[:3].numpy()
    first = Policy("fixed", exit=1)
    answers = [bundle.runtime(client).predict(raw, first).logits for client in bundle.clients]
    assert np.abs(answers[0] - answers[1]).mean() > 0.1
    assert np.abs(answers[1] - answers[2]).mean() > 0.1


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("kind", "answer"), [("confidence", "own"), ("margin", "running"), ("entropy", "own")])
def test_samples_leave_where_the_trace_says(deployed: Deployed, format: str, kind: Signal, answer: Answer) -> None:
    raw = deployed.dataset.inputs[:60]
    answering = Answering(answer)
    probabilities = np.stack([answering.add(logits.numpy()) for logits in deployed.logits(3, raw)], axis=1)
    traced = trace(probabilities)
    ordered = np.sort(getattr(traced, kind)[:, :2], axis=0)
    middle = tuple(((ordered[29] + ordered[30]) / 2).tolist())
    runtime = deployed.bundle().runtime(3, format)
    for policy, exits in (
        (Policy(kind, threshold=middle, answer=answer), {0, 1, 2}),
        (Policy(kind, threshold=middle[0], answer=answer, enabled=(True, False, True)), {0, 2}),
    ):
        taken = simulate(policy, traced)
        assert set(taken) == exits, "a policy that treats all samples alike proves little"
        got = runtime.predict(raw.numpy(), policy)
        assert got.exits.tolist() == taken.tolist()
        np.testing.assert_allclose(got.probabilities, probabilities[np.arange(60), taken], rtol=0, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_thresholds_zero_and_one_are_the_first_and_the_last_exit(deployed: Deployed, format: str) -> None:
    runtime, raw = deployed.bundle().runtime(4, format), deployed.dataset.inputs[:9].numpy()
    for threshold, exit_index in ((0.0, 0), (1.0, 2)):
        assert set(runtime.predict(raw, Policy("confidence", threshold=threshold)).exits) == {exit_index}


def test_patience_runs_by_stages_only(deployed: Deployed) -> None:
    raw, patience = deployed.dataset.inputs[:40], Policy("patience", patience=1)
    traced = trace(np.stack([torch.softmax(each, 1).numpy() for each in deployed.logits(0, raw)], axis=1))
    got = deployed.bundle().runtime(0).predict(raw.numpy(), patience)
    assert got.exits.tolist() == simulate(patience, traced).tolist()
    with pytest.raises(ValueError, match="'patience' needs the format onnx-stages"):
        deployed.bundle().runtime(0, "onnx-if").predict(raw.numpy(), patience)


def test_weights_are_stored_once_and_only_what_differs_per_client(deployed: Deployed) -> None:
    manifest = json.loads((deployed.path / "bundle.json").read_text())
    backbone = [t for n, t in deployed.network.state_dict().items() if n.startswith("stages.") and "running" not in n]
    bytes_shared = sum(tensor.nbytes for tensor in backbone if tensor.is_floating_point())
    stored = (deployed.path / "graphs" / "weights.bin").stat().st_size
    assert bytes_shared <= stored < bytes_shared + 64 * len(backbone)
    with np.load(deployed.path / "clients" / "client-000003.npz") as own:
        assert set(own.files) == set(deployed.own[3])
        assert all(np.array_equal(own[name], deployed.own[3][name].numpy()) for name in own.files)
    for path in (deployed.path / "graphs").glob("*.onnx"):
        model = onnx.load(path, load_external_data=False)
        kinds = {node.op_type for node in model.graph.node}
        assert "If" in kinds or "BatchNormalization" in kinds, "statistics must stay replaceable"
        locations = {
            entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"
        }
        assert locations == {"weights.bin", "client"}
    assert manifest["personal"] == {"tensors": len(deployed.own[3]), "whole_model": False}


def test_every_file_is_vouched_for(deployed: Deployed) -> None:
    manifest = json.loads((deployed.path / "bundle.json").read_text())
    there = {path.relative_to(deployed.path).as_posix() for path in deployed.path.rglob("*") if path.is_file()}
    assert set(manifest["files"]) | {"bundle.json"} == there


def test_models_of_their_own(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "stage_graphs", lambda *_: deployed.stages)
    network = copy.deepcopy(deployed.network)
    own = random_clients(network, [0, 1])
    for client, tensors in own.items():
        torch.manual_seed(client)
        whole = network.state_dict().items()
        tensors.update({n: torch.rand_like(t) - 0.5 for n, t in whole if t.ndim and n not in tensors})
    made = deploy(network, deployed.dataset, tmp_path / "bundle", own, ["onnx-stages"])
    manifest = json.loads((made.path / "bundle.json").read_text())
    assert manifest["personal"]["whole_model"]
    assert (made.path / "graphs" / "weights.bin").stat().st_size == 0
    assert list(manifest["formats"]) == ["onnx-stages"]
    agrees(made, made.dataset.inputs[:3])


def test_folder_that_holds_something_is_refused(deployed: Deployed, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        deploy(deployed.network, deployed.dataset, tmp_path, deployed.own)
    assert (tmp_path / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize(("method", "whole"), [("fedper", False), ("fedavg", False), ("local", True)])
def test_own_tensors_of_a_run_make_up_its_models(train: Callable[..., Run], method: str, whole: bool) -> None:
    run = train(method=method, rounds=1, sample=0.5, convnet={"width": 4, "norm": "batch"})
    own = OwnTensors(run, range(6))
    base = run.model(0).state_dict()
    for client in own:
        wanted = run.model(client).state_dict()
        assert {name for name, tensor in wanted.items() if not torch.equal(tensor, base[name])} <= own.names
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in own[client].items())
    assert (own.names == {name for name, tensor in base.items() if tensor.ndim}) == whole


def test_text_of_any_length(tmp_path: Path) -> None:
    vocabulary = Vocabulary((*SPECIAL, *(f"word{number}" for number in range(30))))
    texts = [" ".join(f"word{(7 * k + length) % 31}" for k in range(length)) for length in (1, 4, 30, 11)]
    ids = torch.from_numpy(vocabulary.encode(texts, 20))
    data = Dataset("news", ids, torch.arange(4), tuple("abcd"), kind="text", vocabulary=vocabulary.words)
    torch.manual_seed(1)
    settings = Transformer.Settings(vocabulary=40, width=8, depth=3, heads=2, feedforward=16)
    network = Transformer(settings).build((20,), 4, "all").eval()
    made = deploy(network, data, tmp_path / "bundle", random_clients(network, [0, 1]))
    agrees(made, ids, texts)
    agrees(made, ids[:2])
    alone = made.bundle().runtime(0).predict(texts[:1], Policy("fixed", exit=3))
    np.testing.assert_allclose(alone.logits, made.logits(0, ids[:1])[2].numpy(), rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """100 clients of the paper's CIFAR-100 network."""
    torch.manual_seed(0)
    network = ResNet18().build((3, 32, 32), 100, "all").eval()
    images = torch.zeros((1, 3, 32, 32), dtype=torch.uint8)
    cifar100 = Dataset("cifar100", images, torch.zeros(1, dtype=torch.int64), tuple(map(str, range(100))))
    return deploy(network, cifar100, tmp_path_factory.mktemp("hundred") / "bundle", random_clients(network, range(100)))


def test_a_hundred_clients_fit_into_95_megabytes(hundred: Deployed) -> None:
    size = sum(path.stat().st_size for path in hundred.path.rglob("*") if path.is_file())
    models = 100 * sum(tensor.nbytes for tensor in hundred.network.state_dict().values())
    print(f"bundle {size / 1e6:.1f} MB, {models / 1e6:,.0f} MB as single models")
    assert size < 95e6 < models
    assert hundred.bundle().clients == tuple(range(100))


@pytest.mark.skipif("XFED_DATA" not in os.environ, reason="the real files of cifar100 are not under XFED_DATA")
def test_parity_on_real_cifar(hundred: Deployed) -> None:
    source = datasets.get("cifar100")()
    assert isinstance(source, PublishedSource)
    if source.find() is None:
        pytest.skip("the real files of cifar100 are not under XFED_DATA")
    real = source.load()
    mine = hundred.dataset
    assert (real.scale, real.mean, real.std) == (mine.scale, mine.mean, mine.std)
    agrees(hundred, real.inputs[::10_000].contiguous())
