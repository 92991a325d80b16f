"""The verifier must say no where a bundle only looks right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import pytest
from onnx import GraphProto, NodeProto, helper

from tests.deployed import Deployed, change_manifest, rewrite
from xfed import Run
from xfed.cli import execute
from xfed.export.graphs import IR_VERSION, OPSET
from xfed.export.verify import Reference, _differences, skipping
from xfed_runtime.bundle import Bundle

pytestmark = pytest.mark.slow

IF = "graphs/if.onnx"


def computes_everything(honest: bytes) -> bytes:
    """Dress a static graph up as one that skips: every stage runs, then nested `If`s pick what was computed."""
    model = onnx.load_from_string(honest)
    graph = model.graph
    hoisted = _hoist(graph.node)
    static = helper.make_graph(hoisted, "early-exit", graph.input, graph.output, graph.initializer)
    made = helper.make_model(static, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return made.SerializeToString()


def _hoist(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Move everything but the last `Identity`s out of the branches."""
    *before, last = nodes
    if last.op_type != "If":
        return list(nodes)
    branches = {attribute.name: attribute.g for attribute in last.attribute}
    inner = _hoist(branches["else_branch"].node)
    results = [value.name for value in branches["else_branch"].output]
    new = [f"picked/{name}" for name in results]
    picks = [helper.make_node("Identity", [old], [name]) for old, name in zip(results, new, strict=True)]
    outputs = []
    for value, name in zip(branches["else_branch"].output, new, strict=True):
        outputs.append(onnx.ValueInfoProto())
        outputs[-1].CopyFrom(value)
        outputs[-1].name = name
    pick = helper.make_graph(picks, "stay", [], outputs)
    chosen = helper.make_node("If", last.input, last.output, then_branch=branches["then_branch"], else_branch=pick)
    return [*before, *inner, chosen]


def anonymous(graph: GraphProto) -> None:
    """Take away the names that tell stages."""
    for number, node in enumerate(graph.node):
        node.name = f"node{number}"


@pytest.fixture
def copy(deployed: Deployed, tmp_path: Path) -> Path:
    return shutil.copytree(deployed.path, tmp_path / "bundle")


@pytest.mark.parametrize("format", ["onnx-stages", "onnx-if"])
@pytest.mark.parametrize("exit_index", [0, 1, 2])
def test_honest_bundle(deployed: Deployed, format: str, exit_index: int) -> None:
    bundle = deployed.bundle()
    assert skipping(bundle, 3, format, exit_index) == (bundle.macs[exit_index], None)


def test_graph_that_computes_everything_is_found_out(copy: Path) -> None:
    rewrite(copy, IF, computes_everything((copy / IF).read_bytes()))
    bundle = Bundle.open(copy)
    executed, problem = skipping(bundle, 0, "onnx-if", 0)
    assert executed == bundle.macs[-1]
    assert problem is not None
    assert "not skipped" in problem
    assert skipping(bundle, 0, "onnx-if", 2)[1] is None


def test_its_answers_alone_would_not_give_it_away(deployed: Deployed, copy: Path) -> None:
    rewrite(copy, IF, computes_everything((copy / IF).read_bytes()))
    raw = deployed.dataset.inputs[:5]
    reference = Reference(3, raw.numpy(), [logits.numpy() for logits in deployed.logits(3, raw)])
    assert max(_differences(Bundle.open(copy).runtime(3, "onnx-if"), reference)) < 1e-5


def test_first_stage_that_runs_the_second_as_well_is_found_out(deployed: Deployed, copy: Path) -> None:
    first, second = (onnx.load(copy / f"graphs/stage-{number}.onnx", load_external_data=False) for number in (1, 2))
    first.graph.node.extend(second.graph.node)
    first.graph.initializer.extend(second.graph.initializer)
    anonymous(first.graph)
    rewrite(copy, "graphs/stage-1.onnx", first.SerializeToString())

    def personal(manifest: dict) -> None:  # type: ignore[type-arg]
        graphs = manifest["formats"]["onnx-stages"]["graphs"]
        graphs[0]["personal"] += graphs[1]["personal"]

    change_manifest(copy, personal)
    _, problem = skipping(Bundle.open(copy), 0, "onnx-stages", 0)
    assert problem is not None
    assert "not skipped" in problem


def test_another_clients_tensors_are_found_out(deployed: Deployed, copy: Path) -> None:
    rewrite(copy, "clients/client-000000.npz", (copy / "clients" / "client-000003.npz").read_bytes())
    raw = deployed.dataset.inputs[:5]
    reference = Reference(0, raw.numpy(), [logits.numpy() for logits in deployed.logits(0, raw)])
    for format in ("onnx-stages", "onnx-if"):
        assert min(_differences(Bundle.open(copy).runtime(0, format), reference)) > 1e-3


def test_from_run_to_verdict(
    train: Callable[..., Run], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(rounds=2, convnet={"width": 4, "norm": "batch"})
    bundle = tmp_path / "bundle"
    assert execute(["export", str(run.path), "--clients", "0-2,5", "-o", str(bundle)]) == 0
    assert Bundle.open(bundle).clients == (0, 1, 2, 5)
    assert execute(["verify", str(bundle)]) == 0
    assert "the same as PyTorch" in capfd.readouterr().out
    assert execute(["device-bench", str(bundle), "-o", str(tmp_path / "device.json"), "--repetitions", "3"]) == 0
    assert execute(["verify", str(bundle), "--run", str(tmp_path / "nowhere")]) == 2
    rewrite(bundle, IF, computes_everything((bundle / IF).read_bytes()))
    assert execute(["verify", str(bundle), "--run", str(run.path)]) == 1
    assert "not skipped" in capfd.readouterr().err
    run.path.rename(tmp_path / "moved")
    assert execute(["verify", str(bundle)]) == 2
    assert "say where with --run" in capfd.readouterr().err
