"""The one round loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from torch import Tensor

from xfed.errors import ClientError, InputError
from xfed.experiment.sections import OnFailure
from xfed.federation.plan import Plan
from xfed.federation.watching import Watchers
from xfed.models.layout import ModelState
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.cohort import Cohort
from xfed.protocol.engine import Engine
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.uploads import DivergedError, RejectedError, Uploads
from xfed.protocol.words import Evaluated, EvaluateTask, Failed, Trained, TrainTask
from xfed.runs.checkpoint import Checkpoint
from xfed.runs.directory import RunDirectory
from xfed.runs.records import RoundRecord
from xfed.runs.store import ClientStore
from xfed_runtime.answers import Answer


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
    metrics: tuple[str, ...] = ()
    watchers: Watchers = field(default_factory=Watchers)
    _known: dict[int, tuple[int, Evaluated]] = field(default_factory=dict, init=False)
    """Evaluations that depend on a client's state alone, with its version."""
    _unsaved: tuple[Checkpoint, list[RoundRecord]] | None = field(default=None, init=False)
    """The last complete round, where no checkpoint is due yet."""

    def run(self) -> None:
        """Run all rounds that are left; what stops them loses no complete round."""
        try:
            self._run()
        except BaseException:
            if self._unsaved is not None:
                self._save_late(*self._unsaved)
            raise

    def _save_late(self, checkpoint: Checkpoint, records: Sequence[RoundRecord]) -> None:
        """Save a round for which no checkpoint was due, unless a later one was saved in the moment of the interrupt."""
        checkpoints = self.directory.checkpoints
        if checkpoint.round > max(checkpoints.rounds(), default=0):
            self.directory.write_rounds(records)
            checkpoints.write(checkpoint)

    def _run(self) -> None:
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
                self._unsaved = None
            else:
                self._unsaved = (self._checkpoint(), list(records))
            self.watchers.round_ended(records[-1], accuracy)

    # Training

    def _round(self, cohort: Cohort) -> RoundRecord:
        self.states.round = self.kept.round = cohort.round
        sent = downloads(self.algorithm, self.server, cohort)
        uploads = self.algorithm.expect(self.server, sent)
        versions = self.states.versions
        tasks = [TrainTask(c, cohort.round, sent[c], versions.get(c)) for c in cohort.clients]
        failed: list[Failed] = []
        bytes_up = macs = samples = 0
        loss = 0.0
        answers = self.watchers.work(self.engine.train(tasks), cohort.round, "training", len(tasks))
        for result in in_order(answers, cohort.clients):
            taken = self._take(uploads, result)
            if isinstance(taken, Failed):
                self.states.discard(taken.client)
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

    @staticmethod
    def _take(uploads: Uploads, result: Trained | Failed) -> Trained | Failed:
        """Add an upload, unless there is none or it cannot be taken."""
        if isinstance(result, Failed):
            return result
        if result.macs and not math.isfinite(result.loss):
            return Failed(result.client, f"diverged: its loss is {result.loss}", "diverged")
        try:
            uploads.add(result.client, result.upload)
        except RejectedError as error:
            return Failed(result.client, str(error), "diverged" if isinstance(error, DivergedError) else "rejected")
        return result

    def _bear(self, failure: Failed, round: int) -> Failed:
        """Live with a failure, or stop."""
        if failure.failure == "input":
            raise InputError(failure.reason)
        if self.patience.on_failure == "stop":
            raise ClientError(f"client {failure.client} in round {round} {failure.reason}", failure.failure)
        return failure

    def _require_enough(self, cohort: Cohort, failed: Sequence[Failed]) -> None:
        replies = len(cohort.clients) - len(failed)
        if replies < min(self.patience.min_replies, len(cohort.clients)):
            first = failed[0]
            raise ClientError(
                f"round {cohort.round} has answers of {replies} of {len(cohort.clients)} clients, and min_replies is "
                f"{self.patience.min_replies}; the first to fail: client {first.client} {first.reason}",
                first.failure,
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
        clients = sum(client not in current for client in self.plan.evaluated)
        for result in self.watchers.work(self.engine.evaluate(groups()), round, "evaluation", clients):
            if isinstance(result, Failed):
                failed.append(self._bear(result, round))
            else:
                if final:
                    self._write_model(sent.pop(result.client), result)
                found[result.client] = replace(result, own=None, shared=())
        lasting = (c for c, e in found.items() if e.alone and c not in needed and c in versions)
        self._known = current | {c: (versions[c], replace(found[c], macs=0)) for c in lasting}
        if not final:  # what a run that was never interrupted would know from before costs nothing here either
            before = max((each for each in range(1, round) if self.plan.evaluates(each)), default=0)
            found |= {c: replace(found[c], macs=0) for c in self._known if c in found and versions[c] <= before}
        everyone = found | {client: known[1] for client, known in current.items()}
        if not everyone:
            first = failed[0]
            raise ClientError(f"no client could be evaluated in round {round}: client {first.client} {first.reason}")
        return [everyone[c] for c in self.plan.evaluated if c in everyone], failed

    def _evaluation(self, client: int, round: int, message: Message, final: bool) -> EvaluateTask:
        version = self.states.versions.get(client)
        traces, metrics, answers = self.traces, self.metrics, self.answers
        return EvaluateTask(client, round, message, version, final, traces, final, metrics, answers)

    def _write_model(self, sent: Message, result: Evaluated) -> None:
        """Write a final model: what it shares with others is what was sent."""
        layout = self.server.layout
        shared: dict[str, Tensor] = {name: sent.tensors[name] for name in result.shared}
        if result.own is not None:
            self.directory.write_model(result.client, layout.named(shared), layout.named(result.own.tensors))

    # Checkpoints

    def _checkpoint(self) -> Checkpoint:
        """Copy what makes the last complete round: the next one changes tensors in place."""
        model = self.server.model
        tensors = {"model.parameters": model.parameters, "model.statistics": model.statistics}
        tensors |= {f"method.{name}": tensor for name, tensor in self.server.tensors.items()}
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        return Checkpoint(self.server.round, copies, dict(self.states.versions), dict(self.kept.versions))

    def _save(self) -> None:
        checkpoints = self.directory.checkpoints
        checkpoints.write(self._checkpoint())
        rounds = checkpoints.rounds()
        self.states.collect(rounds)
        self.kept.collect(rounds)


def downloads(algorithm: Algorithm, server: Server, cohort: Cohort) -> dict[int, Message]:
    """Put together what participants receive: their model, cut to what each carries, and what goes with it."""
    models = algorithm.model_for(server, cohort.clients, "training")
    besides = algorithm.besides(server, cohort)
    messages = {}
    for client in cohort.clients:
        message = models[client]
        level = algorithm.level(client, server.population, server.layout.exits)
        if level is not None:
            message = Message(server.subnetworks.cut(dict(message.tensors), level), message.values)
        messages[client] = message.having(round=cohort.round).with_message(besides.get(client, Message()))
    return messages


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
    # Copies: what was read is the mapped file, which is deleted when later checkpoints take its place.
    tensors = {name: tensor.clone() for name, tensor in checkpoint.tensors.items()}
    server.model = ModelState(tensors.pop("model.parameters"), tensors.pop("model.statistics"))
    server.tensors = {name.removeprefix("method."): tensor for name, tensor in tensors.items()}
    server.round = checkpoint.round
