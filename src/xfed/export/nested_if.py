"""One ONNX graph that skips by itself: each exit's answer is followed by an `If` around everything behind it.

`If` has one predicate, so this form takes one sample at a time. Inputs besides the sample: `thresholds`, one for
each exit but the last; `signal`, weights of (confidence, margin, −entropy) whose sum must exceed the threshold;
`running`, whether exits answer with the running mean of the exits passed. Outputs: `logits` (the exit's own),
`probabilities` (its answer) and `exit`, counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from xfed.export.graphs import StageGraph

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def nested_if(stages: Sequence[StageGraph]) -> GraphProto:
    """Nest the stages; all their constants stand in the outermost graph."""
    initializers = [constant for stage in stages for constant in stage.constants]
    classes = stages[0].logits.type.tensor_type.shape.dim[1].dim_value
    inputs = [_for_one(value) for value in stages[0].inputs]
    inputs.append(helper.make_tensor_value_info("thresholds", FLOAT, [len(stages) - 1]))
    inputs.append(helper.make_tensor_value_info("signal", FLOAT, [3]))
    inputs.append(helper.make_tensor_value_info("running", BOOL, []))
    outputs = _results("", classes)
    nodes = _from_exit(0, stages, classes, "")
    return helper.make_graph(nodes, "early-exit", inputs, outputs, [*_constants(len(stages)), *initializers])


def _for_one(value: ValueInfoProto) -> ValueInfoProto:
    """Close the batch dimension at one sample."""
    one = ValueInfoProto()
    one.CopyFrom(value)
    one.type.tensor_type.shape.dim[0].dim_value = 1
    return one


def _results(prefix: str, classes: int) -> list[ValueInfoProto]:
    return [
        helper.make_tensor_value_info(f"{prefix}logits", FLOAT, [1, classes]),
        helper.make_tensor_value_info(f"{prefix}probabilities", FLOAT, [1, classes]),
        helper.make_tensor_value_info(f"{prefix}exit", INT64, []),
    ]


def _from_exit(index: int, stages: Sequence[StageGraph], classes: int, results: str) -> list[NodeProto]:
    """Give the nodes of one exit's stage, its answer and the `If` around the rest; results under this prefix."""
    stage = stages[index]
    at = f"exit{index + 1}/"
    nodes = [*stage.nodes, *_answer(index, stage.logits.name)]
    taken = [(stage.logits.name, "logits"), (f"{at}answer", "probabilities"), (f"index/{index}", "exit")]
    if index == len(stages) - 1:
        return nodes + [_node("Identity", [value], [f"{results}{name}"], at) for value, name in taken]
    leave, stay = f"{at}leave/", f"{at}stay/"
    here = [_node("Identity", [value], [f"{leave}{name}"], at) for value, name in taken]
    there = _from_exit(index + 1, stages, classes, stay)
    return [
        *nodes,
        *_decision(index),
        helper.make_node(
            "If",
            [f"{at}leaves"],
            [value.name for value in _results(results, classes)],
            f"{at}If",
            then_branch=helper.make_graph(here, f"{at}leave", [], _results(leave, classes)),
            else_branch=helper.make_graph(there, f"{at}stay", [], _results(stay, classes)),
        ),
    ]


def _answer(index: int, logits: str) -> list[NodeProto]:
    """Answer with the exit's own softmax, or Σ k · softmax(z_k) / Σ k over the exits so far (`answers`)."""
    at, before = f"exit{index + 1}/", f"exit{index}/"
    if index == 0:
        return [
            _node("Softmax", [logits], [f"{at}answer"], at, axis=-1),
            _node("Identity", [f"{at}answer"], [f"{at}sum"], at),
        ]
    return [
        _node("Softmax", [logits], [f"{at}own"], at, axis=-1),
        _node("Mul", [f"{at}own", f"weight/{index}"], [f"{at}weighted"], at),
        _node("Add", [f"{before}sum", f"{at}weighted"], [f"{at}sum"], at),
        _node("Div", [f"{at}sum", f"weights/{index}"], [f"{at}mean"], at),
        _node("Where", ["running", f"{at}mean", f"{at}own"], [f"{at}answer"], at),
    ]


def _decision(index: int) -> list[NodeProto]:
    """Compare the chosen signal with the exit's threshold, strictly."""
    at = f"exit{index + 1}/"
    return [
        _node("TopK", [f"{at}answer", "two"], [f"{at}best", f"{at}which"], at, axis=-1),
        _node("Split", [f"{at}best"], [f"{at}confidence", f"{at}second"], at, axis=1, num_outputs=2),
        _node("Sub", [f"{at}confidence", f"{at}second"], [f"{at}margin"], at),
        _node("Greater", [f"{at}answer", "zero"], [f"{at}possible"], at),
        _node("Where", [f"{at}possible", f"{at}answer", "one"], [f"{at}safe"], at),
        _node("Log", [f"{at}safe"], [f"{at}logarithm"], at),
        _node("Mul", [f"{at}answer", f"{at}logarithm"], [f"{at}terms"], at),
        _node("ReduceSum", [f"{at}terms", "classes"], [f"{at}order"], at, keepdims=1),
        _node("Min", [f"{at}order", "zero"], [f"{at}minus-entropy"], at),
        _node("Concat", [f"{at}confidence", f"{at}margin", f"{at}minus-entropy"], [f"{at}signals"], at, axis=1),
        _node("Mul", [f"{at}signals", "signal"], [f"{at}chosen"], at),
        _node("ReduceSum", [f"{at}chosen"], [f"{at}score"], at, keepdims=0),
        _node("Gather", ["thresholds", f"index/{index}"], [f"{at}threshold"], at),
        _node("Greater", [f"{at}score", f"{at}threshold"], [f"{at}leaves"], at),
    ]


def _constants(exits: int) -> list[TensorProto]:
    values: dict[str, np.ndarray] = {
        "two": np.array([2], dtype=np.int64),
        "classes": np.array([1], dtype=np.int64),
        "zero": np.array(0, dtype=np.float32),
        "one": np.array(1, dtype=np.float32),
    }
    for index in range(exits):
        values[f"index/{index}"] = np.array(index, dtype=np.int64)
        values[f"weight/{index}"] = np.array(index + 1, dtype=np.float32)
        values[f"weights/{index}"] = np.array((index + 1) * (index + 2) // 2, dtype=np.float32)
    return [numpy_helper.from_array(value, name) for name, value in values.items()]


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str], prefix: str, **attributes: int) -> NodeProto:
    node = helper.make_node(kind, inputs, outputs, f"{prefix}{outputs[0].removeprefix(prefix)}-{kind}")
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return node
