"""Less than float32: the same networks within the error of their numbers, smaller, judged on samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from tests.deployed import Deployed, contents, random_clients
from xfed import Run, calibrate
from xfed.bundles import bundle as export
from xfed.bundles import weights
from xfed.bundles.bundle import write_bundle
from xfed.bundles.card import card_of
from xfed.bundles.precision import ClientSamples, Labelled, Precision
from xfed.bundles.verify import verify, ways
from xfed.cli import execute
from xfed_runtime import Bundle, Policy

pytestmark = pytest.mark.slow

FORMATS = ["onnx-stages", "onnx-if"]


def samples(deployed: Deployed) -> Callable[[int], ClientSamples]:
    """60 samples to calibrate with and 200 to test on, for every client the same."""

    def labelled(first: int, last: int) -> Labelled:
        inputs, labels = deployed.dataset.inputs[first:last].numpy(), deployed.dataset.labels[first:last].numpy()
        return Labelled(inputs, labels, np.arange(first, last))

    return lambda client: ClientSamples(labelled(0, 60), labelled(60, 260))


@pytest.fixture
def write(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bundle]:
    """Write the networks of `deployed` in some precision; with `exits`, clients differ in their exits alone."""
    monkeypatch.setattr(export, "stage_graphs", lambda *_: deployed.stages)
    monkeypatch.setattr(weights, "LARGEST_INLINE", 48)  # or nothing of so small a network would be in files

    def carry_out(precision: Precision, exits: bool = False, data: bool = True) -> Bundle:
        own = random_clients(deployed.network, [0, 3])
        if exits:
            own = {c: {n: t for n, t in each.items() if n.startswith("exits.")} for c, each in own.items()}
        made = replace(contents(deployed.network, deployed.dataset, own), samples=samples(deployed) if data else None)
        write_bundle(made, FORMATS, tmp_path / "bundle", precision)
        return Bundle.open(tmp_path / "bundle")

    return carry_out


def logits(deployed: Deployed, bundle: Bundle, client: int, raw: torch.Tensor) -> list[np.ndarray]:
    """What PyTorch says, with this client's exits and statistics."""
    reference = random_clients(deployed.network, [client])[client]
    names = {each.name.removesuffix("-half") for each in bundle.manifest.personal} or set(reference)
    deployed.network.load_state_dict({n: t for n, t in reference.items() if n in names}, strict=False)
    with torch.no_grad():
        found = deployed.network.eval()(deployed.dataset.normalise(raw)).logits
    return [found[index].numpy() for index in sorted(found)]


@pytest.mark.parametrize(
    ("precision", "exits", "data", "most"),
    [
        ("fp16", False, True, 2e-3),
        ("int8", False, True, 0.05),
        ("int8", False, False, 0.08),
        ("int8", True, True, 0.05),
        ("int8", True, False, 0.08),
    ],
)
def test_answers_are_those_of_pytorch_within_the_error_of_the_numbers(
    write: Callable[..., Bundle], deployed: Deployed, precision: Precision, exits: bool, data: bool, most: float
) -> None:
    bundle = write(precision, exits, data)
    raw = deployed.dataset.inputs[300:360]
    assert (bundle.manifest.together is not None) == (precision == "fp16" or exits)
    for client in bundle.clients:
        wanted = logits(deployed, bundle, client, raw)
        for way in ways(bundle):
            runtime = way.load(bundle, client)
            for index, each in enumerate(wanted):
                got = runtime.predict(raw.numpy(), Policy("fixed", exit=index + 1)).logits
                assert 0 < np.abs(got - each).max() < most * np.abs(each).max()
    assert verify(bundle).problems == []


def test_half_precision_halves_the_files(write: Callable[..., Bundle], deployed: Deployed) -> None:
    bundle = write("fp16")
    for name in ("weights.bin", "client-000003.bin"):
        sizes = [(path / "networks" / name).stat().st_size for path in (bundle.root, deployed.path)]
        assert 0.5 <= sizes[0] / sizes[1] < 0.75, "but for the gaps between tensors"
    assert {each.type for each in bundle.manifest.personal} == {"float16"}


def test_weights_become_bytes_and_exits_stay(write: Callable[..., Bundle]) -> None:
    bundle = write("int8")
    for number in (1, 2, 3):
        model = onnx.load(bundle.root / f"networks/client-000003.stage-{number}.onnx")
        held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        (kernel,) = (array for array in held.values() if array.ndim == 4)
        assert kernel.dtype == np.int8
        assert np.abs(kernel).max() <= 64, "seven bits"
        assert held[f"exits.{number - 1}.linear.weight"].dtype == np.float32
        assert not [node for node in model.graph.node if node.op_type == "BatchNormalization"]


def test_kernels_that_differ_by_statistics_alone_are_stored_once(write: Callable[..., Bundle]) -> None:
    bundle = write("int8")
    names = [f"networks/client-00000{client}.stage-2.onnx" for client in (0, 3)]
    places = []
    for name in names:
        model = onnx.load(bundle.root / name, load_external_data=False)
        places.append([tuple(e.value for e in t.external_data) for t in model.graph.initializer if len(t.dims) == 4])
    assert places[0] == places[1]
    assert places[0][0], "it is in the shared file"


def test_thresholds_are_chosen_anew_and_accuracy_is_told_beside_float(
    train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(rounds=4, calibration=0.3, method="fedper", convnet={"width": 8, "norm": "batch"})
    arguments = ["export", str(run.path), "--clients", "0,2", "--format", "onnx-stages"]
    for precision in ("fp32", "int8"):
        assert execute([*arguments, "--precision", precision, "-o", str(tmp_path / precision)]) == 0
    assert "accuracy on test samples" in capsys.readouterr().out
    plain, small = (Bundle.open(tmp_path / name) for name in ("fp32", "int8"))
    for client in (0, 2):
        before, after = plain.policies(client), small.policies(client)
        assert before.keys() == after.keys()
        assert before["budget-90%"] != after["budget-90%"]
        assert before["exit-3"].macs == after["exit-3"].macs
    for each in small.manifest.content["card"]["exits"]:
        before, after = each["stored"]
        assert abs(before - after) < 0.1, "a few of some dozen samples at most"
    text = (tmp_path / "int8" / "MODEL_CARD.md").read_text()
    assert "| clients here, fp32 | clients here, int8 |" in text
    assert "in int8 they were chosen anew" in text


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("data", [True, False])
def test_no_default_promises_what_was_found_with_float32(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision, data: bool
) -> None:
    run = train(rounds=2, calibration=0.3)
    if not data:
        monkeypatch.setattr(export, "samples_of", lambda _: None)
    calibrate(run, risk=0.5, per_client=False)
    promise = Policy.read(run.path / "policies" / "shared.json").note
    assert "with confidence 90%" in promise
    export.export(run, [0, 1], ["onnx-stages"], tmp_path / "bundle", precision)
    bundle = Bundle.open(tmp_path / "bundle")
    told = f"chosen on float32, and not known to hold in {precision}: {promise}"
    assert [bundle.policies(client)["default"].policy.note for client in (0, 1)] == [told, told]
    assert bundle.json("policies/shared.json")["default"]["policy"]["note"] == told
    ladder = bundle.policies(0)["budget-90%"].policy.note
    assert ladder.startswith("chosen on float32") != data
    if data:
        text = (bundle.root / "MODEL_CARD.md").read_text()
        assert f"what it promises of float32 is not guaranteed in {precision}" in text


def test_a_partition_file_with_calibration_lists_of_its_own(train: Callable[..., Run], tmp_path: Path) -> None:
    first = train("first", rounds=1, calibration=0.25)
    (tmp_path / "lists.json").write_text(json.dumps(first.partition().to_json()))
    run = train("second", rounds=1, calibration=0, partition=tmp_path / "lists.json")
    assert "25% of what it would train on" in card_of(run).calibration
    export.export(run, [0], ["onnx-stages"], tmp_path / "bundle", "int8")
    card = Bundle.open(tmp_path / "bundle").manifest.content["card"]
    assert "in int8 they were chosen anew" in card["calibration"]
    assert all(each["stored"] is not None for each in card["exits"])
    operators = {node.op_type for node in onnx.load(tmp_path / "bundle/networks/client-000000.stage-1.onnx").graph.node}
    assert "QuantizeLinear" in operators
    assert "DynamicQuantizeLinear" not in operators


def test_without_data_nothing_is_claimed(write: Callable[..., Bundle]) -> None:
    bundle = write("int8", data=False)
    card = bundle.manifest.content["card"]
    assert "thresholds and expected figures are float32's" in card["calibration"]
    assert all(each["stored"] is None for each in card["exits"])


def test_bad_input(train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(train(rounds=1).path)
    out = ["-o", str(tmp_path / "bundle")]
    for options, sentence in (
        (["--precision", "int8", "--format", "onnx-if"], "needs the format onnx-stages"),
        (["--precision", "fp16", "--standalone"], "--standalone writes float32"),
        (["--precision", "int4"], "int4"),
    ):
        assert execute(["export", run, *options, *out]) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()
