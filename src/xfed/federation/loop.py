"""The one round loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from torch import Tensor

from xfed.errors import ClientError, InputError
from xfed.evaluation.summary import RoundAccuracy
from xfed.experiment.sections import OnFailure
from xfed.federation.plan import Plan
from xfed.models.layout import ModelState
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.cohort import Cohort
from xfed.protocol.engine import Engine
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import RejectedError, Uploads
from xfed.protocol.words import Evaluated, EvaluateTask, Failed, Trained, TrainTask
from xfed.runs.checkpoint import Checkpoint
from xfed.runs.directory import RunDirectory
from xfed.runs.records import RoundRecord
from xfed.runs.store import ClientStore
from xfed_runtime.answers import Answer


class Watcher(Protocol):
    """Sees a run go by, for instance a progress bar."""

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Take note of a completed round."""


@dataclass(frozen=True)
class Patience:
    """What happens when clients fail: the run stops, or the round goes on with at least so many answers."""

    on_failure: OnFailure = "stop"
    min_replies: int = 1


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
    patience: Patience = Patience()
    traces: bool = True
    answers: Answer = "own"
    watchers: Sequence[Watcher] = ()
    _known: dict[int, tuple[int, Evaluated]] = field(default_factory=dict, init=False)
    """Evaluations that depend on a client's state alone, with its version."""

    def run(self) -> None:
        """Run all rounds that are left."""
        records = [record for record in self.directory.rounds() if record.round <= self.server.round]
        seen = {c for record in records for c in self.plan.cohort(record.round).clients if c not in record.failed}
        for round in range(self.server.round + 1, self.plan.rounds + 1):
            started = time.perf_counter()
            cohort = self.plan.cohort(round)
            record = self._round(cohort)
            trained = time.perf_counter()
            seen.update(client for client in cohort.clients if client not in record.failed)
            accuracy = None
            if self.plan.evaluates(round):
                found, failed = self._evaluate(round)
                accuracy = self.directory.write_evaluation(round, found, seen, len(self.plan.sizes), self.answers)
                record = replace(
                    record,
                    tuning_macs=sum(each.macs for each in found),
                    unevaluated=tuple(each.client for each in failed),
                )
            ended = time.perf_counter()
            records.append(replace(record, train_seconds=trained - started, evaluation_seconds=ended - trained))
            if self.server.notes:
                self.directory.write_notes(round, self.server.notes)
                self.server.notes = {}
            if self.plan.saves(round):
                self.directory.write_rounds(records)
                self._save()
            for watcher in self.watchers:
                watcher.round_ended(records[-1], accuracy)

    # Training

    def _round(self, cohort: Cohort) -> RoundRecord:
        self.states.round = self.kept.round = cohort.round
        sent = self._downloads(cohort)
        uploads = self.algorithm.expect(self.server, sent)
        versions = self.states.versions
        tasks = [TrainTask(c, cohort.round, sent[c], versions.get(c)) for c in cohort.clients]
        failed: list[Failed] = []
        bytes_up = macs = samples = 0
        loss = 0.0
        for result in in_order(self.engine.train(tasks), cohort.clients):
            taken = self._take(uploads, result)
            if isinstance(taken, Failed):
                failed.append(self._bear(taken, cohort.round))
                continue
            if taken.remembers:
                self.states.count(taken.client)
            weight = int(taken.upload.values.get("samples", 1))  # type: ignore[arg-type]
            bytes_up += taken.upload.nbytes
            macs += taken.macs
            loss += taken.loss * weight
            samples += weight
        self._require_enough(cohort, failed)
        self.algorithm.aggregate(self.server, uploads)
        self.server.round = cohort.round
        return RoundRecord(
            round=cohort.round,
            clients=len(cohort.clients),
            replies=len(uploads.clients),
            failed=tuple(each.client for each in failed),
            reasons=tuple(each.reason for each in failed),
            unevaluated=(),
            bytes_down=sum(message.nbytes for message in sent.values()),
            bytes_up=bytes_up,
            macs=macs,
            tuning_macs=0,
            loss=loss / samples,
        )

    def _downloads(self, cohort: Cohort) -> dict[int, Message]:
        """Put together what participants receive: their model, cut to what each carries, and what goes with it."""
        models = self.algorithm.model_for(self.server, cohort.clients, "training")
        besides = self.algorithm.besides(self.server, cohort)
        downloads = {}
        for client in cohort.clients:
            message = models[client]
            level = self.algorithm.level(client, self.server.population, self.server.layout.exits)
            if level is not None:
                message = Message(self.server.subnetworks.cut(dict(message.tensors), level), message.values)
            downloads[client] = message.having(round=cohort.round).with_message(besides.get(client, Message()))
        return downloads

    @staticmethod
    def _take(uploads: Uploads, result: Trained | Failed) -> Trained | Failed:
        """Add an upload, unless there is none or it cannot be taken."""
        if isinstance(result, Failed):
            return result
        try:
            uploads.add(result.client, result.upload)
        except RejectedError as error:
            return Failed(result.client, str(error), "rejected")
        return result

    def _bear(self, failure: Failed, round: int) -> Failed:
        """Live with a failure, or stop."""
        if failure.failure == "input":
            raise InputError(failure.reason)
        if self.patience.on_failure == "stop":
            raise ClientError(f"client {failure.client} in round {round} {failure.reason}")
        return failure

    def _require_enough(self, cohort: Cohort, failed: Sequence[Failed]) -> None:
        replies = len(cohort.clients) - len(failed)
        if replies < min(self.patience.min_replies, len(cohort.clients)):
            first = failed[0]
            raise ClientError(
                f"round {cohort.round} has answers of {replies} of {len(cohort.clients)} clients, and min_replies is "
                f"{self.patience.min_replies}; the first to fail: client {first.client} {first.reason}"
            )

    # Evaluation

    def _evaluate(self, round: int) -> tuple[list[Evaluated], list[Failed]]:
        """Evaluate clients; one whose model is its own and has not changed since is not evaluated again."""
        final = round == self.plan.rounds
        versions = self.states.versions
        current = {} if final else {c: known for c, known in self._known.items() if known[0] == versions[c]}
        sent: dict[int, Message] = {}
        needed: set[int] = set()

        def groups() -> Iterator[list[EvaluateTask]]:
            for group in self.plan.groups(self.server.layout.size * 4 if final else 0):
                rest = [client for client in group if client not in current]
                if rest:
                    messages = self.algorithm.model_for(self.server, rest, "evaluation")
                    needed.update(client for client in rest if messages[client].tensors)
                    if final:
                        sent.update(messages)
                    yield [self._evaluation(client, round, messages[client], final) for client in rest]

        found: dict[int, Evaluated] = {}
        failed: list[Failed] = []
        for result in self.engine.evaluate(groups()):
            if isinstance(result, Failed):
                failed.append(self._bear(result, round))
            else:
                if final:
                    self._write_model(sent.pop(result.client), result)
                found[result.client] = replace(result, own=None, shared=())
        lasting = (c for c, e in found.items() if e.alone and c not in needed and c in versions)
        self._known = current | {c: (versions[c], found[c]) for c in lasting}
        everyone = found | {client: known[1] for client, known in current.items()}
        if not everyone:
            first = failed[0]
            raise ClientError(f"no client could be evaluated in round {round}: client {first.client} {first.reason}")
        return [everyone[c] for c in self.plan.evaluated if c in everyone], failed

    def _evaluation(self, client: int, round: int, message: Message, final: bool) -> EvaluateTask:
        version = self.states.versions.get(client)
        return EvaluateTask(client, round, message, version, final=final, traces=self.traces, model=final)

    def _write_model(self, sent: Message, result: Evaluated) -> None:
        """Write a final model: what it shares with others is what was sent."""
        layout = self.server.layout
        shared: dict[str, Tensor] = {name: sent.tensors[name] for name in result.shared}
        if result.own is not None:
            self.directory.write_model(result.client, layout.named(shared), layout.named(result.own.tensors))

    # Checkpoints

    def _save(self) -> None:
        checkpoints = self.directory.checkpoints
        model = self.server.model
        tensors = {"model.parameters": model.parameters, "model.statistics": model.statistics}
        tensors |= {f"method.{name}": tensor for name, tensor in self.server.tensors.items()}
        checkpoints.write(Checkpoint(self.server.round, tensors, self.states.versions, self.kept.versions))
        rounds = checkpoints.rounds()
        self.states.collect(rounds)
        self.kept.collect(rounds)


R = TypeVar("R", Trained | Failed, Evaluated | Failed)


def in_order(results: Iterable[R], clients: Sequence[int]) -> Iterator[R]:
    """Give results in the order of the clients, whoever finished first; each is passed on as soon as it is its turn."""
    waiting = iter(clients)
    ready: dict[int, R] = {}
    turn = next(waiting, None)
    for result in results:
        ready[result.client] = result
        while turn in ready:
            yield ready.pop(turn)
            turn = next(waiting, None)
    if turn is not None:
        raise ClientError(f"client {turn} was never answered for, and neither were those after it")


def restore(server: Server, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state back into a server."""
    tensors = dict(checkpoint.tensors)
    server.model = ModelState(tensors.pop("model.parameters"), tensors.pop("model.statistics"))
    server.tensors = {name.removeprefix("method."): tensor for name, tensor in tensors.items()}
    server.round = checkpoint.round
