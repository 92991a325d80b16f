"""What a run will take, tried out: one client of the first and of the last round really trains, on a few samples.

Bytes are those of real messages. MACs and seconds grow with the samples: they are measured on one batch and scaled to
what clients hold. A method that trains more as rounds go by, such as X-FED, lies between its first and its last round.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from xfed.data.views import ClientData, View
from xfed.experiment import Experiment
from xfed.federation.host import Host, simulated
from xfed.federation.loop import downloads
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.cohort import Cohort
from xfed.protocol.server import Server
from xfed.protocol.words import EvaluateTask, TrainTask
from xfed.running import Ready, brief, plan_of, prepare
from xfed.runs.store import ClientStore
from xfed.threads import single_thread
from xfed.training.trainer import EVALUATION_BATCH
from xfed.units import counted, duration, size
from xfed_runtime.memory import peak_memory_mb

TOGETHER = 4
"""Clients that take part in a tried round: a method may compare them, one of them trains."""


@dataclass(frozen=True)
class Share:
    """A mean client's part of one round."""

    bytes_down: float
    bytes_up: float
    macs: float
    seconds: float


@dataclass(frozen=True)
class Rehearsal:
    """What a run will take on this machine."""

    experiment: Experiment
    first: Share
    last: Share
    parameters: int
    exit_macs: tuple[int, ...]
    evaluation_seconds: float
    """All evaluations together, and what is tuned before the final one, on one worker."""
    workers: int
    memory_mb: float | None
    """The most that this process held while a client trained: about what one worker holds."""

    def __str__(self) -> str:
        header = ["in one round", "round 1", f"round {self.experiment.training.rounds}", "run, all clients"]
        lines = [header, *self.by_round()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*(line.rstrip() for line in table), *self.in_all()])

    def by_round(self) -> list[list[str]]:
        """Say what the first and the last round take of a client, and all rounds of all."""
        said = {"received by a client": "bytes_down", "sent by a client": "bytes_up", "computed by a client": "macs"}
        return [
            [name, *(_amount(value, what) for value in (*self._ends(what), self.over_all_rounds(what)))]
            for name, what in said.items()
        ]

    def in_all(self) -> list[str]:
        """Say what the network is and what the run takes, in sentences."""
        e = self.experiment
        macs = ", ".join(f"{j}: {count:,}" for j, count in enumerate(self.exit_macs, 1))
        said = [f"network: {self.parameters:,} parameters; MACs per input, leaving at exit {macs}"]
        if self.memory_mb is not None:
            said.append(f"memory: about {self.memory_mb:.0f} MB for each of {counted(self.workers, 'worker')}")
        said.append(
            f"time: {duration(self.seconds)} for {e.training.rounds} rounds of {e.cohort_size} of "
            f"{e.dealing.clients} clients, from one client's work tried just now"
        )
        return said

    def _ends(self, what: str) -> tuple[float, float]:
        return getattr(self.first, what), getattr(self.last, what)

    def over_all_rounds(self, what: str) -> float:
        """Add a part up over all rounds and clients of them, half way between the first round and the last."""
        mean = sum(self._ends(what)) / 2
        return float(mean * self.experiment.training.rounds * self.experiment.cohort_size)

    @property
    def seconds(self) -> float:
        """How long the run will take."""
        return (self.over_all_rounds("seconds") + self.evaluation_seconds) / self.workers


def _amount(value: float, what: str) -> str:
    return f"{value / 1e9:.3g} GMAC" if what == "macs" else size(value)


def workers_of(experiment: Experiment) -> int:
    """Count the workers that compute side by side on this machine."""
    place = experiment.place
    return place.workers or ((os.cpu_count() or 1) if place.engine == "processes" else 1)


def rehearse(experiment: Experiment) -> Rehearsal:
    """Try a run out, without leaving anything on disk."""
    with single_thread(), tempfile.TemporaryDirectory() as folder:
        return _Stage(prepare(experiment), Path(folder)).play()


class _Stage:
    """Server and host of a run that is only tried."""

    def __init__(self, ready: Ready, folder: Path) -> None:
        self.ready, self.experiment = ready, ready.experiment
        self.algorithm: Algorithm = self.experiment.algorithm()
        self.plan = plan_of(self.experiment, ready.partition)
        trainer, clients = ready.trainer, len(ready.partition)
        initial = trainer.snapshot()
        kept = ClientStore(folder / "server")
        subnetworks = Subnetworks(trainer.network, trainer.layout)
        self.server = Server(subnetworks, initial, initial.clone(), {}, kept, self.experiment.seed, clients)
        device = self.experiment.place.device
        whole = simulated(ready.dataset, ready.partition, device)

        def few(client: int) -> ClientData:
            data = whole(client)
            train, test = (_cut(data.train, trainer.batch_size), _cut(data.test, EVALUATION_BATCH))
            return ClientData(train, _cut(data.calibration, 0), test)

        briefing = brief(self.experiment, ready.card, initial, ready.kernels, clients)
        self.host = Host.of(briefing, few, device)

    def play(self) -> Rehearsal:
        rounds = self.experiment.training.rounds
        self._train(1)  # the first time everything is slower
        first, last = self._train(1), self._train(rounds)
        costs = self.ready.trainer.costs
        return Rehearsal(
            self.experiment,
            first,
            last,
            self.ready.trainer.layout.size,
            tuple(costs.leaving_at(j) for j in range(len(costs.exits))),
            self._evaluations(rounds),
            workers_of(self.experiment),
            peak_memory_mb(),
        )

    def _train(self, round: int) -> Share:
        """Let a client in the middle of a round's cohort train, and scale to the mean client."""
        everyone = self.plan.cohort(round).clients
        middle = max(0, len(everyone) // 2 - TOGETHER // 2)
        cohort = Cohort(round, self.plan.rounds, everyone[middle : middle + TOGETHER])
        client = cohort.clients[len(cohort.clients) // 2]
        message = downloads(self.algorithm, self.server, cohort)[client]
        (trained, _), seconds = _timed(lambda: self.host.train(TrainTask(client, round, message, None), {}))
        scale = float(np.mean(self.plan.sizes)) / len(self.host.data(client).train)
        return Share(message.nbytes, trained.upload.nbytes, trained.macs * scale, seconds * scale)

    def _evaluations(self, rounds: int) -> float:
        client = self.plan.evaluated[0]
        message = self.algorithm.model_for(self.server, [client], "evaluation")[client]

        def evaluate(final: bool) -> None:
            task = EvaluateTask(client, rounds, message, None, final=final, traces=True, model=False)
            self.host.evaluate([task], {})

        evaluate(False)
        usual, final = _timed(lambda: evaluate(False))[1], _timed(lambda: evaluate(True))[1]
        data = self.host.data(client)
        times = sum(self.plan.evaluates(round) for round in range(1, rounds + 1))
        samples = sum(self.plan.test_sizes[each] for each in self.plan.evaluated)
        tuned = 0.0
        if self.algorithm.tuned_at_the_end:
            tuned = max(0.0, final - usual) * sum(self.plan.sizes[each] for each in self.plan.evaluated)
        return times * usual * samples / max(len(data.test), 1) + tuned / max(len(data.train), 1)


def _cut(view: View, samples: int) -> View:
    return View(view.dataset, view.indices[:samples])


T = TypeVar("T")


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began
