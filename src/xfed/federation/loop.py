"""The one round loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from xfed.evaluation.accuracy import Evaluation
from xfed.evaluation.summary import RoundAccuracy
from xfed.federation.checkpoint import Checkpoint
from xfed.federation.host import Engine, Task
from xfed.federation.plan import Plan
from xfed.federation.run_directory import RoundRecord, RunDirectory
from xfed.federation.store import ClientStore
from xfed.models.layout import ModelState
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server


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
    _known: dict[int, tuple[int, Evaluation]] = field(default_factory=dict, init=False)
    """Evaluations that depend on a client's state alone, with its version."""

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
                found = self._evaluate(round)
                accuracy = self.directory.write_evaluation(round, found, seen, len(self.plan.sizes))
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

    def _evaluate(self, round: int) -> list[Evaluation]:
        """Evaluate clients; one whose model is its own and has not changed since is not evaluated again."""
        final = round == self.plan.rounds
        versions = self.states.versions
        current = {} if final else {c: known for c, known in self._known.items() if known[0] == versions[c]}

        def groups() -> Iterator[list[Task]]:
            for group in self.plan.groups:
                rest = [client for client in group if client not in current]
                if rest:
                    messages = self.algorithm.deliver(self.server, rest)
                    needed.update(client for client in rest if messages[client].tensors)
                    yield [self._task(client, round, messages[client]) for client in rest]

        needed: set[int] = set()
        found = {evaluation.client: evaluation for evaluation in self.engine.evaluate(groups())}
        lasting = (c for c, e in found.items() if e.alone and c not in needed and c in versions)
        self._known = current | {c: (versions[c], found[c]) for c in lasting}
        return [found[c] if c in found else current[c][1] for c in self.plan.evaluated]

    def _save(self) -> None:
        checkpoints = self.directory.checkpoints
        model = self.server.model
        tensors = {"model.parameters": model.parameters, "model.statistics": model.statistics}
        tensors |= {f"method.{name}": tensor for name, tensor in self.server.tensors.items()}
        checkpoints.write(Checkpoint(self.server.round, tensors, self.states.versions, self.kept.versions))
        rounds = checkpoints.rounds()
        self.states.collect(rounds)
        self.kept.collect(rounds)


def restore(server: Server, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state back into a server."""
    tensors = dict(checkpoint.tensors)
    server.model = ModelState(tensors.pop("model.parameters"), tensors.pop("model.statistics"))
    server.tensors = {name.removeprefix("method."): tensor for name, tensor in tensors.items()}
    server.round = checkpoint.round
