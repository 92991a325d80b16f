"""Bundles against PyTorch."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from tests.conftest import SAMPLED
from tests.deployed import Deployed, change_manifest, contents, deploy, random_clients
from xfed import Run
from xfed.bundles import bundle as export
from xfed.bundles.bundle import OwnTensors
from xfed.bundles.card import card_of, markdown
from xfed.bundles.precision import Precision
from xfed.bundles.standalone import write_standalone
from xfed.bundles.verify import TOLERANCES, verify, ways
from xfed.data.dataset import Dataset, datasets
from xfed.data.raw.source import PublishedSource
from xfed.errors import InputError
from xfed.models.resnet import ResNet18
from xfed.models.transformer import Transformer
from xfed_runtime import Bundle, Policy
from xfed_runtime.answers import ANSWERS, Answer, Answering, Signals, signals
from xfed_runtime.policy import Signal, simulate
from xfed_runtime.sessions import SessionSettings, StageEngine
from xfed_runtime.text import SPECIAL, Vocabulary

pytestmark = pytest.mark.slow  # converting a network takes seconds

FORMATS = ["onnx-stages", "onnx-if"]


def agrees(deployed: Deployed, raw: torch.Tensor, given: object = None) -> None:
    """Every client, format, exit and kind of answer within 1e-5 of PyTorch."""
    bundle = deployed.bundle()
    exits = len(bundle.macs)
    for client in (min(bundle.clients), max(bundle.clients)):
        wanted = [logits.numpy() for logits in deployed.logits(client, raw)]
        for way in ways(bundle):
            runtime = way.load(bundle, client)
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
    networks = deployed.path / "networks"
    backbone = [t for n, t in deployed.network.state_dict().items() if n.startswith("stages.") and "running" not in n]
    bytes_shared = sum(tensor.nbytes for tensor in backbone if tensor.is_floating_point())
    stored = (networks / "weights.bin").stat().st_size
    assert bytes_shared <= stored < bytes_shared + 64 * len(backbone)
    content = (networks / "client-000003.bin").read_bytes()
    assert {each["name"] for each in manifest["personal"]} == set(deployed.own[3])
    for each in manifest["personal"]:
        wanted = deployed.own[3][each["name"]].numpy()
        found = np.frombuffer(content, np.float32, wanted.size, each["offset"]).reshape(each["shape"])
        assert np.array_equal(found, wanted)
    assert sum(path.stat().st_size for path in networks.glob("client-000003.*.onnx")) < 40_000


@pytest.mark.parametrize("graph", ["stage-1", "stage-2", "stage-3", "if"])
def test_other_tools_open_a_clients_graphs_as_they_are(deployed: Deployed, graph: str) -> None:
    path = deployed.path / "networks" / f"client-000003.{graph}.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    own, shared = deployed.own[3], deployed.network.state_dict()
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    weights = held.keys() & shared.keys()
    assert weights
    for name in weights:
        assert np.array_equal(held[name], (own[name] if name in own else shared[name]).numpy())
    onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_one_file_with_everything(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "stage_graphs", lambda *_: deployed.stages)
    write_standalone(contents(deployed.network, deployed.dataset, deployed.own), tmp_path / "files")
    moved = (tmp_path / "files" / "client-000003.onnx").rename(tmp_path / "alone.onnx")
    session = onnxruntime.InferenceSession(str(moved), providers=["CPUExecutionProvider"])
    noted = session.get_modelmeta().custom_metadata_map
    assert json.loads(noted["classes"]) == list(deployed.dataset.classes)
    runtime = deployed.bundle().runtime(3, "onnx-if")
    for sample in deployed.dataset.inputs[:9]:
        wanted = runtime.predict(sample[None].numpy(), "default")
        inputs = deployed.dataset.normalise(sample[None]).numpy()
        logits, _, exit_index = session.run(["logits", "probabilities", "exit"], {"inputs": inputs})
        assert int(exit_index) == wanted.exits[0]
        np.testing.assert_allclose(logits, wanted.logits, rtol=0, atol=1e-6)
        never = np.full(2, np.inf, dtype=np.float32)
        assert session.run(["exit"], {"inputs": inputs, "thresholds": never})[0] == 2


def test_clients_that_share_share_memory(deployed: Deployed) -> None:
    bundle = deployed.bundle()
    one, other = (bundle.runtime(client, sharing=True).engine for client in (0, 3))
    assert isinstance(one, StageEngine)
    assert isinstance(other, StageEngine)
    assert one.stages is other.stages
    with pytest.raises(ValueError, match="share no graphs in this format"):
        bundle.runtime(0, "onnx-if", sharing=True)


def test_a_provider_that_is_not_there(deployed: Deployed) -> None:
    with pytest.raises(ValueError, match=r"no execution provider 'Abacus' here; it has: .*CPUExecutionProvider"):
        deployed.bundle().runtime(0, settings=SessionSettings(providers=("Abacus",)))


def test_graphs_that_do_not_belong_together(deployed: Deployed, tmp_path: Path) -> None:
    copied = shutil.copytree(deployed.path, tmp_path / "bundle")
    stages = [f"networks/client-000000.stage-{number}.onnx" for number in (1, 2, 3)]
    for order in ((0, 1, 1), (1, 1, 2), (0, 2, 2)):
        chosen = [stages[index] for index in order]
        change_manifest(copied, lambda m, c=chosen: m["clients"]["0"]["networks"].update({"onnx-stages": c}))
        with pytest.raises(ValueError, match=r"does not go with the one before it|is the last, but"):
            Bundle.open(copied).runtime(0)


def test_everyone_with_one_model_has_one_network(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "stage_graphs", lambda *_: deployed.stages)
    made = deploy(deployed.network, deployed.dataset, tmp_path / "bundle", {0: {}, 1: {}})
    there = {path.name for path in (made.path / "networks").iterdir()}
    assert there == {"weights.bin", "everyone.if.onnx", *(f"everyone.stage-{number}.onnx" for number in (1, 2, 3))}
    agrees(made, made.dataset.inputs[:3])


def test_the_model_card(train: Callable[..., Run], tmp_path: Path) -> None:
    run = train(rounds=2, calibration=0.2)
    card = card_of(run)
    text = markdown(card)
    last = run.summary("own").last
    for index, macs in enumerate(run.environment()["network"]["exit_macs"]):
        assert f"| {index + 1} | {macs:,} |" in text
        assert f"{last.exits[index]:.2%} ± {100 * last.exit_stds[index]:.2f}" in text
    for word in ("digits", "xfed", "Must not be used for", "20%", "rounds: 2", card.fingerprint):
        assert word in text
    trace = run.trace("test", 2)
    right = [(each.running.prediction[:, 2] == each.labels).mean() for each in trace.by_client().values()]
    assert f"| {np.mean(right):.2%} |" in text
    assert str(tmp_path) not in text + json.dumps(card.to_json())


def test_own_answers_of_a_run_that_answers_with_running_means(train: Callable[..., Run]) -> None:
    run = train(rounds=2, answers="running")
    trace = run.trace("test")
    assert trace is not None
    for kind in ANSWERS:
        wanted = np.mean([each.right(kind).mean(axis=0) for each in trace.by_client().values()], axis=0)
        shown = [each.accuracy if kind == "own" else each.running for each in card_of(run).exits]
        assert shown == pytest.approx(wanted.tolist())


def test_the_card_of_a_run_that_evaluated_a_sample(train: Callable[..., Run]) -> None:
    run = train(**SAMPLED)
    figures = card_of(run).exits
    assert figures[0].running == pytest.approx(figures[0].accuracy), "exit 1 has nothing to average with"
    assert [each.running for each in figures] == run.summary("running").last.exits


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
    assert manifest["together"] is None
    assert (made.path / "networks" / "weights.bin").stat().st_size == 0
    assert manifest["formats"] == ["onnx-stages"]
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


REZERO = """
import torch
from torch import nn

from xfed.models.network import EarlyExitNetwork, Exit, ModelSource, model


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.gain = nn.Parameter(torch.tensor(0.1))

    def forward(self, maps):
        return maps + self.gain * self.convolution(maps).relu()


@model("rezero")
class ReZero(ModelSource):
    def build(self, input_shape, classes, exits):
        first = nn.Sequential(nn.Conv2d(input_shape[0], 4, 3, padding=1), Residual())
        return EarlyExitNetwork.of([first, Residual()], [Exit(4, classes), Exit(4, classes)], exits)
"""


@pytest.fixture
def rezero(train: Callable[..., Run], tmp_path: Path) -> Run:
    """Clients that share nothing, with numbers that have no dimension: the gains of residual branches."""
    (tmp_path / "rezero.py").write_text(REZERO)
    return train(method="local", model="rezero", plugin=tmp_path / "rezero.py", sample=1.0, rounds=3, epochs=3)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_every_client_has_its_own_gains(rezero: Run, tmp_path: Path, precision: Precision) -> None:
    gains = [float(rezero.model(client).state_dict()["stages.1.gain"]) for client in (0, 5)]
    assert abs(gains[0] - gains[1]) > 1e-3
    export.export(rezero, [0, 5], FORMATS, tmp_path / "bundle", precision)
    bundle = Bundle.open(tmp_path / "bundle")
    assert verify(bundle).problems == []
    if precision == "fp32":
        assert bundle.tensors(5)["stages.1.gain"] == np.float32(gains[1])
    raw = rezero.card.drawn(4)
    wanted = rezero.model(5)(rezero.card.normalise(raw)).logits[1].detach().numpy()
    got = bundle.runtime(5).predict(raw.numpy(), Policy("fixed", exit=2)).logits
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCES[precision])


def test_references_are_the_runs_own_answers(rezero: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = OwnTensors.__getitem__
    monkeypatch.setattr(OwnTensors, "__getitem__", lambda self, client: of(self, 0))
    export.export(rezero, [0, 5], ["onnx-stages"], tmp_path / "bundle")
    assert any("differs from PyTorch" in problem for problem in verify(Bundle.open(tmp_path / "bundle")).problems)


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
