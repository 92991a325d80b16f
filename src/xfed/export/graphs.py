"""From a network to ONNX graphs, one per exit: the stages since the exit before, and the exit itself.

Weights stay named, not filled in: no optimiser can fold a client's BatchNorm statistics or exits into something
that another client's could no longer replace.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnxscript import optimizer
from torch import Tensor, nn

from xfed.errors import InputError
from xfed.models.network import EarlyExitNetwork, StageState

OPSET, IR_VERSION = 20, 10
"""Read by every ONNX Runtime from 1.18 on."""

INPUTS = "inputs"
"""Name of the first graph's input: a batch as `preprocessing` makes it."""


@dataclass(frozen=True)
class StageGraph:
    """The way to one exit. States are named alike where they leave one graph and enter the next."""

    nodes: Sequence[NodeProto]
    inputs: Sequence[ValueInfoProto]
    states: Sequence[ValueInfoProto]
    logits: ValueInfoProto
    weights: Sequence[str]
    """Names of the network's tensors that the nodes use."""
    constants: Sequence[TensorProto]

    def graph(self) -> GraphProto:
        """Assemble a graph of its own: states in, states and logits out; constants hold the weights by then."""
        return helper.make_graph(self.nodes, "stage", self.inputs, [*self.states, self.logits], self.constants)


class Segments(nn.Module):
    """The ways from each exit to the next, side by side, each from inputs of its own: converted in one go."""

    def __init__(self, network: EarlyExitNetwork, parts: Sequence[int]) -> None:
        super().__init__()
        self.stages, self.exits, self.places = network.stages, network.exits, network.places
        self.parts = parts
        """Number of tensors that enter each segment."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Give for each segment the parts of the next state and the logits; for the last one the logits alone."""
        results: list[Tensor] = []
        first, taken = 0, 0
        for head, place, count in zip(self.exits, self.places, self.parts, strict=True):
            state: StageState = tensors[taken] if count == 1 else tensors[taken : taken + count]
            for stage in range(first, place + 1):
                state = self.stages[stage](state)
            first, taken = place + 1, taken + count
            if first < len(self.stages):
                results += _parts(state)
            results.append(head(state)[1])
        return tuple(results)


def stage_graphs(network: EarlyExitNetwork, examples: Sequence[Tensor]) -> list[StageGraph]:
    """Convert a network in evaluation mode.

    `examples`, one more than there are exits, all differ in every dimension that shall stay open: the batch, for
    text also the length. Each segment gets one of its own, or torch would take its sizes for another segment's.
    """
    with torch.no_grad():
        states = [[[one], *(_parts(state) for state in network.states(one))] for one in examples]
    entering = [states[index][index] for index in range(len(network.exits))]
    counts = [len(parts) for parts in entering]
    tensors = tuple(tensor for parts in entering for tensor in parts)
    others = [tensor for index in range(len(counts)) for tensor in states[index + 1][index]]
    open_dimensions = [
        {d: torch.export.Dim.DYNAMIC for d in range(a.ndim) if a.shape[d] != b.shape[d]}
        for a, b in zip(tensors, others, strict=True)
    ]
    model = _convert(Segments(network, counts).eval(), tensors, open_dimensions)
    weights = set(network.state_dict())
    inputs = [value for value in model.graph.input if value.name not in weights]
    outputs = list(model.graph.output)
    graphs, names = [], [INPUTS]
    for number, (entered, left) in enumerate(zip(counts, [*counts[1:], 0], strict=True), 1):
        ends = inputs[:entered], outputs[: left + 1]
        del inputs[:entered], outputs[: left + 1]
        graphs.append(_cut(model.graph, *ends, f"stage{number}/", names, weights))
        names = [state.name for state in graphs[-1].states]
    return graphs


def example_inputs(inputs: Tensor, exits: int, text: bool) -> list[Tensor]:
    """Cut examples for `stage_graphs` out of one prepared input (text: of full length)."""
    lengths = [inputs.shape[1] - index for index in range(exits + 1)] if text else []
    if text and lengths[-1] < 2:
        raise InputError(f"text of {inputs.shape[1]} tokens is too short for the export of {exits} exits")
    batches = [size for size in range(2, 2 * exits + 5) if size not in lengths][: exits + 1]
    whole = [inputs[:1].expand(size, *inputs.shape[1:]).contiguous() for size in batches]
    return [one[:, :length] for one, length in zip(whole, lengths, strict=True)] if text else whole


def _parts(state: StageState) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def _convert(segments: Segments, example: tuple[Tensor, ...], open_dimensions: Sequence[dict[int, Any]]) -> ModelProto:
    """Export and simplify, with the weights as inputs, so that nothing is computed from their present values."""
    chatter = logging.getLogger("torch.onnx")  # about packages that nobody needs
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                segments,
                example,
                dynamo=True,
                optimize=False,
                opset_version=OPSET,
                dynamic_shapes=(tuple(open_dimensions),),
                verbose=False,
            )
    finally:
        chatter.setLevel(level)
    assert program is not None
    model: ModelProto = program.model_proto
    weights = segments.state_dict()
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name in weights]:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        model.graph.initializer.remove(tensor)
    simplified: ModelProto = optimizer.optimize(model)
    branching = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    for node in simplified.graph.node:
        if node.domain or any(attribute.type in branching for attribute in node.attribute):
            raise InputError(f"the network has an operation ({node.op_type}) that the export does not know")
    return simplified


def _cut(
    graph: GraphProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    prefix: str,
    entering: Sequence[str],
    weights: set[str],
) -> StageGraph:
    """Take what leads to some outputs, under names that tell the stage; states keep those they enter under."""
    nodes: list[NodeProto] = []
    wanted = {value.name for value in outputs}
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            nodes.insert(0, NodeProto())
            nodes[0].CopyFrom(node)
    *states, logits = outputs
    renamed = dict(zip((value.name for value in inputs), entering, strict=True))
    renamed |= {value.name: f"{prefix}state{number}" for number, value in enumerate(states, 1)}
    renamed |= {logits.name: f"{prefix}logits", "": ""} | {name: name for name in weights}

    def name(old: str) -> str:
        return renamed.get(old, prefix + old)

    for number, node in enumerate(nodes):
        node.name = f"{prefix}{number}-{node.op_type}"
        node.input[:] = [name(value) for value in node.input]
        node.output[:] = [name(value) for value in node.output]
        del node.metadata_props[:]
    for value in [*inputs, *outputs]:
        value.name = name(value.name)
        del value.metadata_props[:]
    constants = []
    for constant in graph.initializer:
        if constant.name in wanted:
            constants.append(TensorProto())
            constants[-1].CopyFrom(constant)
            constants[-1].name = name(constant.name)
            del constants[-1].metadata_props[:]
    return StageGraph(nodes, inputs, states, logits, sorted(wanted & weights), constants)
