"""The graphs of a bundle on disk: for each client one per stage and one with nested `If`s, and one set for any client.

A client's graphs are small and refer to two files beside them: the weights that all share and the client's own. So
every ONNX tool opens them as they are. The set for any client takes the own tensors as inputs instead: one loaded
copy then serves all clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from torch import Tensor

from xfed.export.graphs import IR_VERSION, OPSET, StageGraph
from xfed.export.nested_if import nested_if
from xfed.export.weights import Array, FlatFile, Layout, arrays

NETWORKS = "networks"
HALF = "-half"


@dataclass(frozen=True)
class Named:
    """A graph by the last part of its file name."""

    name: str
    graph: GraphProto


class NetworkWriter:
    """Writes the networks of clients that differ in some tensors and share the others."""

    def __init__(
        self,
        folder: Path,
        stages: Sequence[StageGraph],
        shared: Mapping[str, Tensor],
        own: Mapping[str, Tensor],
        half: bool = False,
    ) -> None:
        """Store the shared weights, and lay out the own tensors as they are in some client's `own`.

        With `half`, numbers are stored in half precision; graphs turn them into float32, once, when they are loaded.
        """
        self._folder, self._half = folder, half
        used = sorted({name for stage in stages for name in stage.weights})
        own_names = [name for name in used if name in own]
        self._example = self._stored(arrays(own, own_names))
        self._layout = Layout.of(self._example)
        file = FlatFile(folder / "weights.bin")
        rest = self._stored(arrays(shared, [name for name in used if name not in own]))
        self._shared = {name: file.external(name, array) for name, array in rest.items()}
        self._stages = [replace(stage, constants=[file.constant(c) for c in stage.constants]) for stage in stages]
        self._nothing_shared = file.end == 0

    def _stored(self, tensors: dict[str, Array]) -> dict[str, Array]:
        """Give tensors as they are stored, by the name that they have there."""
        if not self._half:
            return tensors
        return {
            f"{name}{HALF}" if array.dtype == np.float32 else name: _halved(array) for name, array in tensors.items()
        }

    @property
    def personal(self) -> list[dict[str, Any]]:
        """Describe the own tensors for the manifest."""
        return self._layout.describe(self._example)

    def write(self, client: int, own: Mapping[str, Tensor], formats: Sequence[str]) -> dict[str, Any]:
        """Write a client's own tensors and its graphs; say for the manifest where. Equal clients have one network."""
        prefix, weights = "everyone", None
        references: dict[str, TensorProto] = {}
        if self._example:
            prefix = f"client-{client:06d}"
            weights = f"{prefix}.bin"
            names = [name.removesuffix(HALF) for name in self._example]
            tensors = self._stored(arrays(own, names))
            self._layout.write(self._folder / weights, tensors)
            references = self._layout.refer(weights, tensors)
        weighed = [self._with_weights(stage, self._shared | references) for stage in self._stages]
        return {
            "networks": save(self._folder, prefix, named_graphs(weighed, formats)),
            "weights": None if weights is None else f"{NETWORKS}/{weights}",
        }

    def write_together(self) -> list[str] | None:
        """Write the graphs for any client; there are none where clients share nothing, or everything."""
        if not self._example or self._nothing_shared:
            return None
        graphs = []
        for number, stage in enumerate(self._stages, 1):
            weighed = self._with_weights(stage, self._shared)
            graph = weighed.graph()
            for name in self._names(stage):
                if name in self._example:
                    array = self._example[name]
                    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                    graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
            graphs.append(Named(f"stage-{number}", graph))
        return save(self._folder, "any-client", {"onnx-stages": graphs})["onnx-stages"]

    def _names(self, stage: StageGraph) -> list[str]:
        """Name a stage's weights as they are stored."""
        stored = self._shared.keys() | self._example.keys()
        return [f"{name}{HALF}" if f"{name}{HALF}" in stored else name for name in stage.weights]

    def _with_weights(self, stage: StageGraph, references: Mapping[str, TensorProto]) -> StageGraph:
        """Add what a stage needs of the weights to its constants, and what turns half precision into float32."""
        names = self._names(stage)
        casts = [_cast(name) for name in names if name.endswith(HALF)]
        constants = [*(references[name] for name in names if name in references), *stage.constants]
        return replace(stage, nodes=[*casts, *stage.nodes], constants=constants)


def named_graphs(stages: Sequence[StageGraph], formats: Sequence[str]) -> dict[str, list[Named]]:
    """Assemble the graphs of each format from stages with their weights."""
    made = {}
    if "onnx-stages" in formats:
        made["onnx-stages"] = [Named(f"stage-{number}", stage.graph()) for number, stage in enumerate(stages, 1)]
    if "onnx-if" in formats:
        made["onnx-if"] = [Named("if", nested_if(stages))]
    return made


def save(folder: Path, prefix: str, graphs: Mapping[str, Sequence[Named]]) -> dict[str, list[str]]:
    """Write graphs; name the files by format, as the manifest does."""
    files: dict[str, list[str]] = {}
    for format, some in graphs.items():
        for each in some:
            name = f"{prefix}.{each.name}.onnx"
            (folder / name).write_bytes(model_of(each.graph).SerializeToString(deterministic=True))
            files.setdefault(format, []).append(f"{folder.name}/{name}")
    return files


def model_of(graph: GraphProto) -> ModelProto:
    """Make a graph a model."""
    versions = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="xfed")


def _halved(array: Array) -> Array:
    """Store in half precision; what is too large or too small for it stays at its limits."""
    if array.dtype != np.float32:
        return array
    largest = np.finfo(np.float16).max
    return np.clip(array, -largest, largest).astype(np.float16)


def _cast(name: str) -> NodeProto:
    return helper.make_node("Cast", [name], [name.removesuffix(HALF)], f"weights/{name}", to=TensorProto.FLOAT)
