"""Eight-bit stages: ONNX Runtime's own quantiser, with ranges of activations from samples, or measured as inputs come.

Weights become int8, per channel; exits stay in float32: they cost next to nothing and decide the answer. With samples,
ranges of activations are fixed (static); without, each input's own are taken when it runs (dynamic), which needs no
data and takes longer. Seven bits of the eight are used: on processors without dot products of bytes, eight overflow.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from xfed.export.graphs import StageGraph
from xfed.export.networks import model_of

Array = NDArray[Any]
STATIC = ["Conv", "MatMul", "Gemm", "Add", "Mul", "Relu", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat"]
DYNAMIC = ["Conv", "MatMul"]


class Batches(CalibrationDataReader):  # type: ignore[misc]
    """Gives the quantiser one batch after another."""

    def __init__(self, batches: Sequence[Mapping[str, Array]]) -> None:
        self._batches = iter(batches)

    def get_next(self) -> Mapping[str, Array] | None:
        """Give the next batch; nothing at the end."""
        return next(self._batches, None)


def quantised(
    stages: Sequence[StageGraph], weights: Mapping[str, Array], keep: set[str], inputs: Array | None
) -> list[StageGraph]:
    """Quantise stages: `weights` become constants of theirs, exits as they are; those of `keep` stay apart.

    `inputs` are prepared samples, as the first stage takes them; their way through the float stages gives the ranges.
    """
    made = []
    states = None if inputs is None else [inputs]
    with tempfile.TemporaryDirectory() as folder, _quietly():
        for number, stage in enumerate(stages, 1):
            path = Path(folder) / f"{number}.onnx"
            outside = {name: weights[name] for name in stage.weights if name in keep or name.startswith("exits.")}
            _write_float(stage, weights, outside, path)
            excluded = [node.name for node in onnx.load(path).graph.node if set(node.input) & outside.keys()]
            if states is None:
                quantize_dynamic(
                    path, path, DYNAMIC, weight_type=QuantType.QUInt8, nodes_to_exclude=excluded, reduce_range=True
                )
            else:
                batches, states = _pass_on(path, stage, states, outside)
                quantize_static(
                    path,
                    path,
                    Batches(batches),
                    QuantFormat.QDQ,
                    STATIC,
                    per_channel=True,
                    reduce_range=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                    nodes_to_exclude=excluded,
                )
            made.append(_as_stage(onnx.load(path), stage, number, outside, keep))
    return made


def _write_float(stage: StageGraph, weights: Mapping[str, Array], outside: Mapping[str, Array], path: Path) -> None:
    """Write a stage with its weights, and let ONNX Runtime fold BatchNorm into them; what stays outside is an input."""
    inside = [numpy_helper.from_array(weights[name], name) for name in stage.weights if name not in outside]
    graph = replace(stage, constants=[*inside, *stage.constants]).graph()
    graph.input.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in outside.items())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model_of(graph).SerializeToString(), options, providers=["CPUExecutionProvider"])


def _pass_on(
    path: Path, stage: StageGraph, states: Sequence[Array], outside: Mapping[str, Array]
) -> tuple[list[dict[str, Array]], list[Array]]:
    """Give the batches that enter a float stage, and the states that leave it."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    batches = [dict(zip((value.name for value in stage.inputs), states, strict=True)) | dict(outside)]
    *after, _ = session.run([value.name for value in (*stage.states, stage.logits)], batches[0])
    return batches, after


def _as_stage(
    model: ModelProto, stage: StageGraph, number: int, outside: Mapping[str, Array], keep: set[str]
) -> StageGraph:
    """Read a quantised graph back, under names that no other stage has."""
    prefix = f"stage{number}/"
    lasting = {value.name for value in (*stage.inputs, *stage.states, stage.logits)} | outside.keys() | {""}

    def name(old: str) -> str:
        return old if old in lasting or old.startswith(prefix) else prefix + old

    for node in model.graph.node:
        node.name = name(node.name)
        node.input[:] = [name(value) for value in node.input]
        node.output[:] = [name(value) for value in node.output]
    for tensor in model.graph.initializer:
        tensor.name = name(tensor.name)
    exits = [numpy_helper.from_array(array, each) for each, array in outside.items() if each not in keep]
    return replace(
        stage,
        nodes=list(model.graph.node),
        weights=[each for each in stage.weights if each in keep],
        constants=[*exits, *model.graph.initializer],
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the quantiser's advice about preprocessing from people."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
