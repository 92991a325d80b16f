"""The paper's case study: early exit against static models, sample by sample, on clean and on noisy inputs.

Every model answers the same samples at batch 1 on one thread. Timings are interleaved: one sample goes through all
models, in an order that rotates, before the next sample does, so that whatever else the machine does hits all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.data.dataset import Dataset
from xfed.data.views import View
from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace
from xfed.inference.runtime import EarlyExitRuntime
from xfed.models.network import EarlyExitNetwork
from xfed.runs.reader import Run
from xfed.threads import single_thread
from xfed_runtime.policy import Policy

Condition = Literal["clean", "noise on pixels", "noise on inputs"]
CONDITIONS: tuple[Condition, ...] = ("clean", "noise on pixels", "noise on inputs")

WARM_UP = 5

LabelAndExit = tuple[int, int]
"""A class, and the exit it comes from."""


@dataclass(frozen=True)
class Setup:
    """Who is looked at, how sure is sure, how strong the noise, and how often each sample is timed."""

    clients: tuple[int, ...]
    epsilon: float = 0.5
    noise: float = 0.1
    samples: int | None = None
    """At most so many of each client's test samples; without it, all."""
    repetitions: int = 3


@dataclass(frozen=True)
class Measured:
    """One model on one client's samples under one condition; `latency` is the mean over samples, in ms."""

    method: str
    early: bool
    condition: Condition
    client: int
    accuracy: float
    latency: float
    shares: tuple[float, ...]


def case_study(early: Run, static: Sequence[Run], setup: Setup) -> Iterator[Measured]:
    """Measure client by client: the early-exit run under a threshold, the others from their last exit alone."""
    traces = _comparable_traces([early, *static], setup.clients)
    dataset = early.dataset()
    for client in setup.clients:
        trace = traces[0].of_client(client)
        chosen = slice(setup.samples)
        samples, labels = trace.samples[chosen], trace.labels[chosen]
        models = {early.experiment.method: _early(early.model(client), setup.epsilon)}
        models |= {run.experiment.method: _static(run.model(client)) for run in static}
        exits = len(early.exit_macs)
        with single_thread():
            for condition in CONDITIONS if dataset.kind == "image" else CONDITIONS[:1]:
                inputs = disturbed(dataset, samples, condition, setup.noise, client)
                found = _time(list(models.values()), inputs, setup.repetitions)
                for method, (answers, exits_taken, latency) in zip(models, found, strict=True):
                    is_early = method == early.experiment.method
                    shares = np.bincount(exits_taken, minlength=exits) / len(samples) if is_early else [1.0]
                    accuracy = float((answers == labels).mean())
                    yield Measured(method, is_early, condition, client, accuracy, latency, tuple(map(float, shares)))


def disturbed(
    dataset: Dataset, samples: NDArray[np.int64], condition: Condition, noise: float, client: int
) -> list[Tensor]:
    """Give samples as a network takes them, one batch each; the same noise for every model.

    Noise on pixels is added to values in [0, 1], which stay there; noise on inputs to what is normalised already.
    """
    view = View(dataset, torch.from_numpy(samples))
    if condition == "clean":
        return [batch.inputs for batch in view.in_order(1)]
    raw = dataset.inputs[view.indices]
    added = noise * torch.randn(raw.shape, generator=torch.Generator().manual_seed(client))
    if condition == "noise on inputs":
        inputs = dataset.normalise(raw) + added
    else:
        inputs = dataset.normalise((raw / dataset.scale + added).clamp(0, 1) * dataset.scale)
    return list(inputs.split(1))


def _early(network: EarlyExitNetwork, epsilon: float) -> Callable[[Tensor], LabelAndExit]:
    runtime, policy = EarlyExitRuntime(network), Policy("confidence", threshold=epsilon)

    def answer(inputs: Tensor) -> LabelAndExit:
        found = runtime.predict(inputs, policy)
        return int(found.labels[0]), int(found.exits[0])

    return answer


def _static(network: EarlyExitNetwork) -> Callable[[Tensor], LabelAndExit]:
    last = len(network.exits) - 1

    @torch.inference_mode()
    def answer(inputs: Tensor) -> LabelAndExit:
        return int(network(inputs, [last]).logits[last].argmax()), 0

    return answer


def _time(
    models: Sequence[Callable[[Tensor], LabelAndExit]], inputs: Sequence[Tensor], repetitions: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64], float]]:
    """Give each model's answers, exits and mean latency; a sample's latency is the median of its repetitions."""
    answers = np.zeros((len(models), len(inputs), 2), dtype=np.int64)
    seconds = np.zeros((len(models), len(inputs), repetitions))
    for model in models:
        for _ in range(WARM_UP):
            model(inputs[0])
    for i, sample in enumerate(inputs):
        for repetition in range(repetitions):
            for turn in range(len(models)):
                number = (turn + i + repetition) % len(models)
                started = time.perf_counter()
                answer = models[number](sample)
                seconds[number, i, repetition] = time.perf_counter() - started
                answers[number, i] = answer
    latencies = 1000 * np.median(seconds, axis=2).mean(axis=1)
    return [(answers[k, :, 0], answers[k, :, 1], float(latencies[k])) for k in range(len(models))]


def _comparable_traces(runs: Sequence[Run], clients: Sequence[int]) -> list[ExitTrace]:
    """Read test traces, and make sure that all runs test the same samples of each client."""
    traces = []
    for run in runs:
        run.require_finished()
        trace = run.trace("test")
        if trace is None:
            raise InputError(f"run {str(run.path)!r} has no exit traces in its folder 'traces'; train it again")
        traces.append(trace)
        if run.card.sha256 != runs[0].card.sha256:
            raise InputError(f"runs {str(runs[0].path)!r} and {str(run.path)!r} are on different data")
        for client in clients:
            own, first = (trace.of_client(client).samples for trace in (traces[-1], traces[0]))
            if not len(own):
                raise InputError(f"run {str(run.path)!r} has no client {client} with test samples")
            if not np.array_equal(own, first):
                raise InputError(
                    f"runs {str(runs[0].path)!r} and {str(run.path)!r} test client {client} on different samples; "
                    "compare runs with the same partition"
                )
    names = [run.experiment.method for run in runs]
    if len(set(names)) < len(names):
        raise InputError(f"the runs are of methods {', '.join(names)}; allowed: each once")
    return traces
