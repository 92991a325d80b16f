"""ONNX Runtime at work: a network as one graph per stage, or as one graph with nested `If`s."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xfed_runtime.policy import SIGNALS, Policy, PolicyError
from xfed_runtime.walking import Answers, Array, walk


@dataclass(frozen=True)
class Graph:
    """A graph file, and the initializers in it that a client's own tensors take the place of."""

    file: Path
    personal: tuple[str, ...]


@dataclass(frozen=True)
class SessionSettings:
    """How ONNX Runtime runs: threads per session; to look inside, without optimisations and with a profile."""

    threads: int = 1
    optimised: bool = True
    profiles: Path | None = None
    """Folder for profiles of what ran."""


class Engine(Protocol):
    """A loaded network that stops computing where the policy says so."""

    exits: int
    together: int | None
    """Samples that may be run together; None for any number."""

    def run(self, inputs: Array, policy: Policy, latencies: Sequence[float] | None, started: float) -> Answers:
        """Answer a prepared batch that began at `started` (perf_counter)."""

    def profiles(self) -> list[Path]:
        """End profiling; give the files, one for each graph."""


def open_session(
    graph: Graph, own: Mapping[str, Array], settings: SessionSettings
) -> tuple[onnxruntime.InferenceSession, list[Any]]:
    """Open a session with a client's tensors in place before anything is optimised; keep the list alive with it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not settings.optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if settings.profiles is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(settings.profiles / graph.file.stem)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(own[name])) for name in graph.personal]
    if values:
        options.add_external_initializers(list(graph.personal), values)
    return onnxruntime.InferenceSession(str(graph.file), options, providers=["CPUExecutionProvider"]), values


class StageEngine:
    """One session per exit. Samples that leave are taken out of the batch; the others go on in a smaller one."""

    together: int | None = None

    def __init__(self, graphs: Sequence[Graph], own: Mapping[str, Array], settings: SessionSettings) -> None:
        self._opened = [open_session(graph, own, settings) for graph in graphs]
        self._names = [[value.name for value in session.get_inputs()] for session, _ in self._opened]
        self.exits = len(graphs)

    def step(self, exit_index: int, state: list[Array]) -> tuple[list[Array], Array]:
        """Run one graph: from the state before it to the next one and its exit's logits."""
        *after, logits = self._opened[exit_index][0].run(None, dict(zip(self._names[exit_index], state, strict=True)))
        return after, logits

    def run(self, inputs: Array, policy: Policy, latencies: Sequence[float] | None, started: float) -> Answers:
        """Answer a batch."""
        return walk([inputs], len(inputs), self.exits, self.step, _rows, policy, latencies, started)

    def profiles(self) -> list[Path]:
        """End profiling; give the files, one for each graph."""
        return [Path(session.end_profiling()) for session, _ in self._opened]


def _rows(state: list[Array], chosen: NDArray[np.int64]) -> list[Array]:
    return [part[chosen] for part in state]


class IfEngine:
    """One session whose graph skips by itself, for one sample at a time."""

    together: int | None = 1

    def __init__(self, graphs: Sequence[Graph], own: Mapping[str, Array], settings: SessionSettings) -> None:
        (graph,) = graphs
        self._session, self._kept = open_session(graph, own, settings)
        shapes = {value.name: value.shape for value in self._session.get_inputs()}
        self.exits = shapes["thresholds"][0] + 1

    def run(self, inputs: Array, policy: Policy, latencies: Sequence[float] | None, started: float) -> Answers:
        """Answer one sample."""
        thresholds, signal = in_graph_words(policy, self.exits)
        feed = {
            "inputs": inputs,
            "thresholds": thresholds,
            "signal": signal,
            "running": np.array(policy.answer == "running"),
        }
        logits, probabilities, exit_index = self._session.run(["logits", "probabilities", "exit"], feed)
        elapsed = 1000 * (time.perf_counter() - started)
        return Answers(logits, probabilities, np.array([exit_index], dtype=np.int64).reshape(1), np.array([elapsed]))

    def profiles(self) -> list[Path]:
        """End profiling; give the one file."""
        return [Path(self._session.end_profiling())]


def in_graph_words(policy: Policy, exits: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Say a policy as the inputs `thresholds` and `signal` of the graph with nested `If`s.

    There a sample leaves where the weighted sum of (confidence, margin, −entropy) exceeds the exit's threshold.
    """
    policy.start(exits)
    if policy.kind == "fixed":
        assert policy.exit is not None
        limits, kind = np.full(exits - 1, np.inf), "confidence"
        limits[policy.exit - 1 : policy.exit] = -np.inf
        limits[~policy.may_leave(exits)[:-1]] = np.inf
    elif policy.kind in SIGNALS:
        limits, kind = policy.thresholds(exits), policy.kind
        limits = -limits if kind == "entropy" else limits
    else:
        raise PolicyError(f"a policy of kind {policy.kind!r} needs the format onnx-stages; onnx-if cannot run it")
    weights = [float(kind == name) for name in ("confidence", "margin", "entropy")]
    return _round_down(limits), np.array(weights, dtype=np.float32)


def _round_down(limits: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 without moving any float32 across: x > limit stays the same for every such x."""
    near = limits.astype(np.float32)
    return np.where(near > limits, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)
