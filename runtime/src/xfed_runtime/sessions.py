"""ONNX Runtime at work: a network as one graph per stage, or as one graph with nested `If`s."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xfed_runtime.device import Latencies
from xfed_runtime.manifest import BundleError
from xfed_runtime.policy import SIGNALS, Policy, PolicyError
from xfed_runtime.walking import Answers, Array, walk

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class SessionSettings:
    """How ONNX Runtime runs: threads per session, and on what; to look inside, not optimised and with a profile."""

    threads: int = 1
    providers: tuple[str, ...] = (CPU,)
    """Execution providers by ONNX Runtime's names, the preferred first; what none of them can do fails."""
    optimised: bool = True
    profiles: Path | None = None
    """Folder for profiles of what ran."""


class Engine(Protocol):
    """A loaded network that stops computing where the policy says so."""

    exits: int
    together: int | None
    """Samples that may be run together; None for any number."""

    def run(self, inputs: Array, policy: Policy, latencies: Latencies | None, started: float) -> Answers:
        """Answer a prepared batch that began at `started` (perf_counter)."""

    def profiles(self) -> list[Path]:
        """End profiling; give the files, one for each graph."""


def open_session(graph: Path, settings: SessionSettings) -> onnxruntime.InferenceSession:
    """Open a session on a graph that has been checked."""
    there = onnxruntime.get_available_providers()
    for name in settings.providers:
        if name not in there:
            raise BundleError(f"ONNX Runtime has no execution provider {name!r} here; it has: {', '.join(there)}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not settings.optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if settings.profiles is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(settings.profiles / graph.stem)
        options.add_session_config_entry("session.disable_prepacking", "1")  # a profile lacks weights that were packed
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=list(settings.providers))
    except Exception as error:  # ONNX Runtime raises kinds of its own
        raise BundleError(f"ONNX Runtime does not load {graph.name!r}: {str(error).splitlines()[0]}") from error


@dataclass(frozen=True)
class Stages:
    """Sessions of the stages in order, with the names of what enters each: the state, then clients' own tensors."""

    sessions: tuple[onnxruntime.InferenceSession, ...]
    states: tuple[tuple[str, ...], ...]
    own: tuple[tuple[str, ...], ...]
    outputs: tuple[list[str], ...]

    @classmethod
    def load(cls, graphs: Sequence[Path], settings: SessionSettings, classes: int) -> Stages:
        """Open the graphs; make sure that each takes what the one before it gives, and answers for all classes."""
        sessions = tuple(open_session(graph, settings) for graph in graphs)
        states, own = [], []
        entering: tuple[str, ...] = ("inputs",)
        for graph, session in zip(graphs, sessions, strict=True):
            names = tuple(value.name for value in session.get_inputs())
            *leaving, logits = session.get_outputs()
            if names[: len(entering)] != entering or logits.shape[1:] != [classes]:
                raise BundleError(f"graph {graph.name!r} does not go with the one before it, or with the classes")
            states.append(entering)
            own.append(names[len(entering) :])
            entering = tuple(value.name for value in leaving)
        if entering:
            raise BundleError(f"graph {graphs[-1].name!r} is the last, but gives a state for another")
        outputs = tuple([value.name for value in session.get_outputs()] for session in sessions)
        return cls(sessions, tuple(states), tuple(own), outputs)


class StageEngine:
    """One session per exit. Samples that leave are taken out of the batch; the others go on in a smaller one."""

    together: int | None = None

    def __init__(self, stages: Stages, own: Mapping[str, Array]) -> None:
        self.stages = stages
        self.exits = len(stages.sessions)
        for name in {name for names in stages.own for name in names} - own.keys():
            raise BundleError(f"the bundle's graphs need a tensor {name!r}, which no client has")
        self._own = [{name: own[name] for name in names} for names in stages.own]

    def step(self, exit_index: int, state: list[Array]) -> tuple[list[Array], Array]:
        """Run one graph: from the state before it to the next one and its exit's logits."""
        stages = self.stages
        feed = dict(zip(stages.states[exit_index], state, strict=True))
        feed.update(self._own[exit_index])
        *after, logits = stages.sessions[exit_index].run(stages.outputs[exit_index], feed)
        return after, logits

    def run(self, inputs: Array, policy: Policy, latencies: Latencies | None, started: float) -> Answers:
        """Answer a batch."""
        return walk([inputs], len(inputs), self.exits, self.step, _rows, policy, latencies, started)

    def profiles(self) -> list[Path]:
        """End profiling; give the files, one for each graph."""
        return [Path(session.end_profiling()) for session in self.stages.sessions]


def _rows(state: list[Array], chosen: NDArray[np.int64]) -> list[Array]:
    return [part[chosen] for part in state]


class IfEngine:
    """One session whose graph skips by itself, for one sample at a time."""

    together: int | None = 1

    def __init__(self, graphs: Sequence[Path], settings: SessionSettings, exits: int, classes: int) -> None:
        (graph,) = graphs
        self._session = open_session(graph, settings)
        self.exits = exits
        shapes = {value.name: value.shape for value in self._session.get_inputs()}
        answers = {value.name: value.shape for value in self._session.get_outputs()}
        if shapes.get("thresholds") != [exits - 1] or answers.get("logits") != [1, classes]:
            raise BundleError(f"graph {graph.name!r} does not have {exits} exits and {classes} classes")

    def run(self, inputs: Array, policy: Policy, latencies: Latencies | None, started: float) -> Answers:
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
    if policy.kind != "fixed" and policy.kind not in SIGNALS:
        raise PolicyError(f"a policy of kind {policy.kind!r} needs the format onnx-stages; onnx-if cannot run it")
    policy.start(exits)
    if policy.kind == "fixed":
        assert policy.exit is not None
        limits, kind = np.full(exits - 1, np.inf), "confidence"
        limits[policy.exit - 1 : policy.exit] = -np.inf
        limits[~policy.may_leave(exits)[:-1]] = np.inf
    else:
        limits, kind = policy.thresholds(exits), policy.kind
        limits = -limits if kind == "entropy" else limits
    weights = [float(kind == name) for name in ("confidence", "margin", "entropy")]
    return _round_down(limits), np.array(weights, dtype=np.float32)


def _round_down(limits: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 without moving any float32 across: x > limit stays the same for every such x."""
    near = limits.astype(np.float32)
    return np.where(near > limits, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)
