"""The one round loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from xfed.evaluation.accuracy import Evaluation
from xfed.evaluation.summary import LAST_ROUNDS, RoundAccuracy
from xfed.federation.checkpoint import Checkpoint
from xfed.federation.host import Engine, Task
from xfed.federation.run_directory import RoundRecord, RunDirectory
from xfed.federation.store import ClientStore
from xfed.models.layout import ModelState
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.cohort import Cohort, draw_cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server

EVALUATED_TOGETHER = 100  # clients whose messages are made at once


@dataclass(frozen=True)
class Plan:
    """How many rounds, with whom, evaluated and saved when."""

    rounds: int
    cohort_size: int
    eval_every: int
    checkpoint_every: int
    sizes: Sequence[int]
    """Training samples per client."""
    seed: int

    def cohort(self, round: int) -> Cohort:
        """Draw a round's cohort, largest client first: dealt out in that order, no worker idles at the end."""
        drawn = draw_cohort(self.seed, round, self.rounds, len(self.sizes), self.cohort_size)
        ordered = sorted(drawn.clients, key=lambda client: (-self.sizes[client], client))
        return Cohort(round, self.rounds, tuple(ordered))

    def evaluates(self, round: int) -> bool:
        """Tell whether a round ends with an evaluation: at the cadence, and in the last five."""
        return round % self.eval_every == 0 or round > self.rounds - LAST_ROUNDS

    def saves(self, round: int) -> bool:
        """Tell whether a round ends with a checkpoint."""
        return round % self.checkpoint_every == 0 or round == self.rounds


class Watcher(Protocol):
    """Sees a run go by, for instance a progress bar."""

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Take note of a completed round."""


@dataclass
class Federation:
    """An assembled run: method, server, clients' states, engine and folder."""

    algorithm: Algorithm
    server: Server
    states: ClientStore
    kept: ClientStore
    engine: Engine
    plan: Plan
    directory: RunDirectory
    watchers: Sequence[Watcher] = ()

    def run(self) -> None:
        """Run all rounds that are left."""
        records = [record for record in self.directory.rounds() if record.round <= self.server.round]
        seen = {client for r in range(1, self.server.round + 1) for client in self.plan.cohort(r).clients}
        if self.server.round == 0:
            self.algorithm.start(self.server)
        for round in range(self.server.round + 1, self.plan.rounds + 1):
            started = time.perf_counter()
            record = self._round(self.plan.cohort(round))
            trained = time.perf_counter()
            seen.update(self.plan.cohort(round).clients)
            accuracy = None
            if self.plan.evaluates(round):
                accuracy = self.directory.write_evaluation(round, list(self._evaluate(round)), seen)
            ended = time.perf_counter()
            records.append(replace(record, train_seconds=trained - started, evaluation_seconds=ended - trained))
            if self.plan.saves(round):
                self.directory.write_rounds(records)
                self._save()
            for watcher in self.watchers:
                watcher.round_ended(records[-1], accuracy)

    def _round(self, cohort: Cohort) -> RoundRecord:
        self.states.round = self.kept.round = cohort.round
        downloads = self.algorithm.download(self.server, cohort)
        uploads = self.algorithm.expect(self.server)
        bytes_up = macs = samples = 0
        loss = 0.0
        results = self.engine.train([self._task(c, cohort.round, downloads[c]) for c in cohort.clients])
        for client, result in zip(cohort.clients, results, strict=True):
            if result.has_state:
                self.states.count(client)
            uploads.add(client, result.upload)
            bytes_up += result.upload.nbytes
            macs += result.macs
            loss += result.loss * self.plan.sizes[client]
            samples += self.plan.sizes[client]
        self.algorithm.aggregate(self.server, uploads)
        self.server.round = cohort.round
        return RoundRecord(
            round=cohort.round,
            clients=len(cohort.clients),
            bytes_down=sum(message.nbytes for message in downloads.values()),
            bytes_up=bytes_up,
            macs=macs,
            loss=loss / samples,
        )

    def _task(self, client: int, round: int, message: Message) -> Task:
        save_to = self.directory.models if round == self.plan.rounds else None
        return Task(client, round, message, self.states.versions.get(client), save_to)

    def _evaluate(self, round: int) -> Iterator[Evaluation]:
        population = range(len(self.plan.sizes))
        for start in range(0, len(population), EVALUATED_TOGETHER):
            clients = population[start : start + EVALUATED_TOGETHER]
            messages = self.algorithm.deliver(self.server, clients)
            yield from self.engine.evaluate([self._task(c, round, messages[c]) for c in clients])

    def _save(self) -> None:
        checkpoints = self.directory.checkpoints
        model = self.server.model
        tensors = {"model.parameters": model.parameters, "model.statistics": model.statistics}
        tensors |= {f"method.{name}": tensor for name, tensor in self.server.tensors.items()}
        checkpoints.write(Checkpoint(self.server.round, tensors, self.states.versions, self.kept.versions))
        indexes = [checkpoints.index(round) for round in checkpoints.rounds()]
        self.states.collect(index["client_versions"] for index in indexes)
        self.kept.collect(index["kept_versions"] for index in indexes)


def restore(server: Server, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state back into a server."""
    tensors = dict(checkpoint.tensors)
    server.model = ModelState(tensors.pop("model.parameters"), tensors.pop("model.statistics"))
    server.tensors = {name.removeprefix("method."): tensor for name, tensor in tensors.items()}
    server.round = checkpoint.round
