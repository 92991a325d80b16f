"""The verifier must say no where a bundle only looks right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper
from torch import nn

from tests.deployed import Deployed, deploy, random_clients, rewrite
from xfed import Run
from xfed.bundles.graphs import IR_VERSION, OPSET
from xfed.bundles.networks import model_of
from xfed.bundles.verify import Reference, Way, _differences, skipping, verify
from xfed.cli import execute
from xfed.models.network import EarlyExitNetwork, Exit
from xfed_runtime.bundle import Bundle

pytestmark = pytest.mark.slow

IF = "networks/client-000000.if.onnx"
STAGE = "networks/client-000000.stage-{}.onnx"


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


WAYS = [Way("onnx-stages"), Way("onnx-if"), Way("onnx-stages", sharing=True)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("exit_index", [0, 1, 2])
def test_honest_bundle(deployed: Deployed, way: Way, exit_index: int) -> None:
    bundle = deployed.bundle()
    assert skipping(bundle, 3, way, exit_index) == (bundle.macs[exit_index], None)


def test_references_need_no_run(deployed: Deployed) -> None:
    found = verify(deployed.bundle())
    assert (found.clients, found.samples, found.problems) == ([0, 3, 4], 12, [])
    assert len(found.checks) == 3 * 3
    assert max(check.difference for check in found.checks) < 1e-5


@pytest.mark.parametrize("bias", [True, False])
def test_transposed_convolutions_are_counted(deployed: Deployed, tmp_path: Path, bias: bool) -> None:
    """ONNX Runtime packs their weights, and a profile does not show what is packed."""
    stages = [nn.Conv2d(1, 4, 3, padding=1), nn.ConvTranspose2d(4, 6, 2, stride=2, bias=bias)]
    network = EarlyExitNetwork.of(stages, [Exit(4, 10), Exit(6, 10)], "all")
    found = verify(deploy(network, deployed.dataset, tmp_path / "up", random_clients(network, [0])).bundle())
    assert found.problems == []
    # 8 × 8 digits: 64 positions of a 3 × 3 kernel, 1 → 4 channels; each position of 4 goes to 2 × 2 of 6
    assert {check.macs for check in found.checks} == {64 * 36 + 40, 64 * 36 + 40 + 64 * 4 * 6 * 4 + 60}


def test_graph_that_computes_everything_is_found_out(copy: Path) -> None:
    rewrite(copy, IF, computes_everything((copy / IF).read_bytes()))
    bundle = Bundle.open(copy)
    executed, problem = skipping(bundle, 0, Way("onnx-if"), 0)
    assert executed == bundle.macs[-1]
    assert problem is not None
    assert "not skipped" in problem
    assert skipping(bundle, 0, Way("onnx-if"), 2)[1] is None


def test_its_answers_alone_would_not_give_it_away(deployed: Deployed, copy: Path) -> None:
    rewrite(copy, IF, computes_everything((copy / IF).read_bytes()))
    raw = deployed.dataset.inputs[:5]
    reference = Reference(0, raw.numpy(), [logits.numpy() for logits in deployed.logits(0, raw)])
    assert max(_differences(Bundle.open(copy).runtime(0, "onnx-if"), reference)) < 1e-5


def test_first_stage_that_runs_the_second_as_well_is_found_out(copy: Path) -> None:
    first, second = (onnx.load(copy / STAGE.format(number), load_external_data=False) for number in (1, 2))
    first.graph.node.extend(second.graph.node)
    first.graph.initializer.extend(second.graph.initializer)
    anonymous(first.graph)
    rewrite(copy, STAGE.format(1), first.SerializeToString())
    _, problem = skipping(Bundle.open(copy), 0, Way("onnx-stages"), 0)
    assert problem is not None
    assert "not skipped" in problem


@pytest.mark.parametrize("operator", ["Einsum", "Det"])
def test_an_operator_that_cannot_be_counted_is_named(copy: Path, operator: str) -> None:
    model = onnx.load(copy / STAGE.format(1), load_external_data=False)
    large = np.ones((64, 64), dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(large, "large"))
    attributes = {"equation": "ij,jk->ik"} if operator == "Einsum" else {}
    model.graph.node.append(
        helper.make_node(operator, ["large"] * (1 + len(attributes)), ["unseen"], "stage1/hidden", **attributes)
    )
    rewrite(copy, STAGE.format(1), model.SerializeToString())
    _, problem = skipping(Bundle.open(copy), 0, Way("onnx-stages"), 0)
    assert problem == f"onnx-stages: leaving at exit 1 ran {operator}, whose cost cannot be counted"


def test_another_clients_tensors_are_found_out(deployed: Deployed, copy: Path) -> None:
    own = "networks/client-00000{}.bin"
    rewrite(copy, own.format(0), (copy / own.format(3)).read_bytes())
    raw = deployed.dataset.inputs[:5]
    reference = Reference(0, raw.numpy(), [logits.numpy() for logits in deployed.logits(0, raw)])
    for way in WAYS:
        assert min(_differences(way.load(Bundle.open(copy), 0), reference)) > 1e-3


def test_from_run_to_verdict(train: Callable[..., Run], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = train(rounds=2, convnet={"width": 4, "norm": "batch"})
    bundle = tmp_path / "bundle"
    assert execute(["export", str(run.path), "--clients", "0-2,5", "-o", str(bundle)]) == 0
    assert Bundle.open(bundle).clients == (0, 1, 2, 5)
    assert execute(["verify", str(bundle)]) == 0
    assert "the same as PyTorch (noted at the export)" in capfd.readouterr().out
    assert execute(["verify", str(bundle), "--run", str(run.path)]) == 0
    assert f"the same as PyTorch (computed anew from {run.path})" in capfd.readouterr().out
    assert str(run.path.parent) not in (bundle / "bundle.json").read_text()
    for client in (0, 1, 2, 5):  # PyTorch's answers are computed for some of them
        damaged = tmp_path / f"damaged-{client}"
        shutil.copytree(run.path, damaged)
        model = damaged / "models" / f"client-{client:06d}.safetensors"
        model.write_bytes(model.read_bytes()[:-4])
        assert execute(["verify", str(bundle), "--run", str(damaged)]) == 2
        assert f"'{model}' is damaged: it has" in capfd.readouterr().err
    assert execute(["device-bench", str(bundle), "-o", str(tmp_path / "device.json"), "--repetitions", "3"]) == 0
    assert execute(["device-bench", str(bundle), "-o", str(tmp_path / "x.json"), "--provider", "Abacus"]) == 2
    assert "no execution provider 'Abacus' here" in capfd.readouterr().err
    assert execute(["export", str(run.path), "--clients", "1", "--standalone", "-o", str(tmp_path / "files")]) == 0
    assert {path.name for path in (tmp_path / "files").iterdir()} == {"client-000001.onnx", "MODEL_CARD.md"}
    assert execute(["verify", str(bundle), "--run", str(tmp_path / "nowhere")]) == 2
    rewrite(bundle, IF, computes_everything((bundle / IF).read_bytes()))
    assert execute(["verify", str(bundle), "--run", str(run.path)]) == 1
    assert "not skipped" in capfd.readouterr().err
    other = train("other", rounds=1)
    assert execute(["verify", str(bundle), "--run", str(other.path)]) == 2
    assert "was not exported from run" in capfd.readouterr().err


@pytest.mark.parametrize("location", ["{secret}", "../secret", "link"])
def test_onnx_runtime_itself_reads_no_file_outside(tmp_path: Path, location: str) -> None:
    # The runtime requires a version that does (from 1.24), so that two locks must fail before a file is read.
    (tmp_path / "secret").write_bytes(b"SECRET12")
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[8], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location.format(secret=tmp_path / "secret"))
    value = helper.make_tensor_value_info("y", TensorProto.UINT8, [8])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [value], [tensor])
    (folder / "g.onnx").write_bytes(model_of(graph).SerializeToString())
    with pytest.raises(Exception, match=r"(?i)escape|outside|absolute|external"):
        onnxruntime.InferenceSession(str(folder / "g.onnx"), providers=["CPUExecutionProvider"]).run(None, {})
