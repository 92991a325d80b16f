"""Networks stored in less than float32: how they are written, and what is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from torch import Tensor

from xfed.evaluation.traces import ExitTrace
from xfed.export.graphs import StageGraph
from xfed.export.networks import NetworkWriter, named_graphs, save
from xfed.export.weights import FlatFile, arrays
from xfed.models.network import EarlyExitNetwork
from xfed_runtime.inputs import Inputs
from xfed_runtime.sessions import SessionSettings, StageEngine, Stages

Precision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

Array = NDArray[Any]
MOST_SAMPLES = 256
"""Samples that ranges of activations are taken from."""


@dataclass(frozen=True)
class Labelled:
    """Raw samples with their labels, and where they are in the pooled data set."""

    inputs: Array
    labels: NDArray[np.int64]
    places: NDArray[np.int64]


@dataclass(frozen=True)
class ClientSamples:
    """A client's samples: to choose ranges and thresholds by, and to report on."""

    calibration: Labelled
    test: Labelled


class Writer(Protocol):
    """Writes the networks of clients."""

    @property
    def personal(self) -> list[dict[str, Any]]:
        """Describe the own tensors for the manifest."""

    def write(self, client: int, own: Mapping[str, Tensor], formats: Sequence[str]) -> dict[str, Any]:
        """Write a client's graphs and own tensors; say for the manifest where."""

    def write_together(self) -> list[str] | None:
        """Write the graphs for any client, where there can be some."""


def writer_for(
    precision: Precision,
    folder: Path,
    stages: Sequence[StageGraph],
    network: EarlyExitNetwork,
    own: Mapping[str, Tensor],
    prepared: Callable[[int | None], Array | None],
) -> Writer:
    """Make what writes networks in a precision; `own` is some client's, `prepared` gives a client's or anyone's inputs.

    In int8, clients that differ in their exits alone share quantised stages. Where they differ inside (in BatchNorm
    statistics, say), each client's stages are quantised apart.
    """
    shared = network.state_dict()
    if precision != "int8":
        return NetworkWriter(folder, stages, shared, own, half=precision == "fp16")
    if all(name.startswith("exits.") for name in own):
        from xfed.export.quantisation import quantised

        made = quantised(stages, arrays(shared, list(shared)), set(own), prepared(None))
        return NetworkWriter(folder, made, shared, own)
    return QuantisedApart(folder, stages, shared, prepared)


class QuantisedApart:
    """Quantises each client's stages by themselves.

    Folding a client's statistics into the weights scales channels, which int8 per channel takes up in the scales: what
    is left differs by rounding alone. So weights that are within one step of those of a client before are taken from
    there, and stored once.
    """

    def __init__(
        self,
        folder: Path,
        stages: Sequence[StageGraph],
        shared: Mapping[str, Tensor],
        prepared: Callable[[int | None], Array | None],
    ) -> None:
        self._folder, self._stages, self._shared, self._prepared = folder, stages, dict(shared), prepared
        self._file = FlatFile(folder / "weights.bin")
        self._stored: dict[str, Array] = {}
        self.personal: list[dict[str, Any]] = []

    def write(self, client: int, own: Mapping[str, Tensor], formats: Sequence[str]) -> dict[str, Any]:
        """Write a client's graphs; its own tensors are in them, or in the file that all share."""
        from xfed.export.quantisation import quantised

        tensors = self._shared | dict(own)
        made = quantised(self._stages, arrays(tensors, list(tensors)), set(), self._prepared(client))
        stored = [replace(stage, constants=[self._store(each) for each in stage.constants]) for stage in made]
        networks = save(self._folder, f"client-{client:06d}", named_graphs(stored, formats))
        return {"networks": networks, "weights": None}

    def write_together(self) -> list[str] | None:
        """There are none: stages that are quantised apart have no place for another client's tensors."""
        return None

    def _store(self, constant: TensorProto) -> TensorProto:
        array = numpy_helper.to_array(constant)
        if array.dtype == np.int8:
            before = self._stored.setdefault(constant.name, array)
            if before.shape == array.shape and np.abs(before.astype(np.int16) - array).max(initial=0) <= 1:
                return self._file.constant(numpy_helper.from_array(before, constant.name))
        return self._file.constant(constant)


@dataclass(frozen=True)
class Comparison:
    """A client's network as stored against PyTorch: accuracy of each exit on its test samples, and its new trace."""

    calibration: ExitTrace
    float_accuracy: list[float]
    stored_accuracy: list[float]


def compare(
    client: int,
    networks: Mapping[str, Sequence[str]],
    root: Path,
    network: EarlyExitNetwork,
    inputs: Inputs,
    samples: ClientSamples,
    classes: int,
) -> Comparison:
    """Run a client's stages as they were written over its samples, and PyTorch beside them."""
    graphs = [root / name for name in networks["onnx-stages"]]
    engine = StageEngine(Stages.load(graphs, SessionSettings(), classes), {})
    aside, test = samples.calibration, samples.test
    prepared = inputs.prepare(test.inputs)
    with torch.no_grad():
        found = network.eval()(torch.from_numpy(prepared)).logits
    return Comparison(
        ExitTrace.of(client, aside.places, aside.labels, _logits(engine, inputs.prepare(aside.inputs))),
        [_accuracy(found[index].numpy(), test.labels) for index in sorted(found)],
        [_accuracy(logits, test.labels) for logits in _logits(engine, prepared)],
    )


def _logits(engine: StageEngine, prepared: Array) -> list[Array]:
    """Give the logits of every exit; nobody leaves."""
    state, found = [prepared], []
    for index in range(engine.exits):
        state, logits = engine.step(index, state)
        found.append(logits)
    return found


def _accuracy(logits: Array, labels: NDArray[np.int64]) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


def prepared_inputs(
    inputs: Inputs, samples: Callable[[int], ClientSamples] | None, clients: Sequence[int]
) -> Callable[[int | None], Array | None]:
    """Give what takes samples to choose ranges by: a client's own, or where it has none, or is nobody, of all."""

    def anyones() -> Array | None:
        assert samples is not None
        share = -(-MOST_SAMPLES // len(clients))
        some = [samples(client).calibration.inputs[:share] for client in clients[:MOST_SAMPLES]]
        together = np.concatenate(some)
        return inputs.prepare(together) if len(together) else None

    def prepared(client: int | None) -> Array | None:
        if samples is None:
            return None
        mine = None if client is None else samples(client).calibration.inputs[:MOST_SAMPLES]
        return anyones() if mine is None or not len(mine) else inputs.prepare(mine)

    return prepared
