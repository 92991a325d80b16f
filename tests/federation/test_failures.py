"""A round survives a missing answer: who failed is named, counted and left out, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.algorithms.test_methods import ALL
from tests.bits import contents, differences
from xfed import ClientError, Experiment, InputError, Message, Run
from xfed.engines.serial import SerialEngine
from xfed.protocol.words import Evaluated, EvaluateTask, Failed, Trained, TrainTask


class MoodyEngine(SerialEngine):
    """Answers in another order than asked; some clients fail, time out or send what cannot be taken."""

    def __init__(self, share: float, seed: int = 0) -> None:
        super().__init__()
        self.share, self.random = share, np.random.default_rng(seed)
        self.failed: list[tuple[int, int]] = []

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        tasks = list(tasks)
        done = list(super().train(tasks))
        order = self.random.permutation(len(done))
        spared = self.random.integers(len(done))
        for number in order:
            result, task = done[number], tasks[number]
            if number != spared and self.random.random() < self.share:
                self.failed.append((task.round, task.client))
                yield self._mishap(result)
            else:
                yield result

    def _mishap(self, result: Trained | Failed) -> Trained | Failed:
        assert isinstance(result, Trained)
        kind = self.random.integers(4)
        if kind == 0 or not result.upload.tensors:
            return Failed(result.client, "did not answer within 1 s", "timeout")
        name, tensor = next(iter(result.upload.tensors.items()))
        broken = {1: torch.full_like(tensor, np.nan), 2: tensor[:-1], 3: tensor.double()}[int(kind)]
        upload = Message({**result.upload.tensors, name: broken}, result.upload.values)
        return Trained(result.client, upload, result.loss, result.macs, result.remembers)


def use(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    monkeypatch.setattr(Experiment, "engine", lambda experiment: engine)


@pytest.mark.parametrize("method", ALL)
def test_every_method_finishes_with_clients_that_drop_out(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    engine = MoodyEngine(share=0.5)
    use(monkeypatch, engine)
    run = train(method=method, sample=1.0, on_failure="drop")
    assert run.finished
    assert engine.failed, "a case without failures proves nothing"
    rows = pq.read_table(run.directory.rounds_file).to_pylist()
    for row in rows:
        missing = sorted(client for round, client in engine.failed if round == row["round"])
        assert sorted(row["failed"]) == missing
        assert (row["clients"], row["replies"]) == (6, 6 - len(missing))
        assert len(row["reasons"]) == len(missing)
        assert np.isfinite(row["loss"])
    found = contents(run)
    assert all(torch.isfinite(tensor).all() for name, tensor in found.items() if name.startswith("models/"))


def test_xfed_remembers_those_who_answered(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MoodyEngine(share=0.4, seed=3)
    use(monkeypatch, engine)
    run = train(method="xfed", sample=1.0, rounds=3, on_failure="drop")
    answered = {
        client: max(r for r in (1, 2, 3) if (r, client) not in engine.failed)
        for client in range(6)
        if any((r, client) not in engine.failed for r in (1, 2, 3))
    }
    found = contents(run)
    assert found["kept/versions"] == answered, "the server keeps what the last answer of each client made"
    assert found["client/versions"] == answered, "and so does the client"
    for round in (1, 2, 3):
        notes = run.notes(round)
        replied = [c for c in notes["cohort"].tolist() if (round, c) not in engine.failed]
        assert notes["teachers"].tolist() == notes["teacher_students"].tolist() == replied
        assert notes["teacher_weights"].sum(1).tolist() == pytest.approx([1.0] * len(replied))


def test_without_failures_dropping_changes_no_bit(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    calm = train("calm")
    use(monkeypatch, MoodyEngine(share=0.0))
    assert differences(calm, train("moody", on_failure="drop")) == [], "and neither does the order of answers"


def test_too_few_answers_stop_the_run(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    class OneAnswers(SerialEngine):
        def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
            first, *others = tasks
            yield from super().train([first])
            yield from (Failed(task.client, "went away", "lost") for task in others)

    use(monkeypatch, OneAnswers())
    assert train("one is enough", on_failure="drop").finished
    with pytest.raises(ClientError, match=r"round 1 has answers of 1 of 3 clients, and min_replies is 2; .* went away"):
        train("two are asked for", on_failure="drop", min_replies=2)
    with pytest.raises(ClientError, match=r"client \d in round 1 went away"):
        train("stop")


def test_a_client_that_cannot_be_evaluated_is_left_out(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FourIsShy(SerialEngine):
        def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
            for result in super().evaluate(groups):
                yield Failed(4, "said no") if result.client == 4 else result

    use(monkeypatch, FourIsShy())
    run = train("shy", on_failure="drop", rounds=2)
    assert [record.unevaluated for record in run.records()] == [(4,), (4,)]
    assert sorted(set(run.metrics()["client"])) == [0, 1, 2, 3, 5]
    with pytest.raises(InputError, match="no final model of client 4"):
        run.model(4)
    with pytest.raises(ClientError, match="client 4 in round 1 said no"):
        train("stop", rounds=2)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(InputError, match="min_replies goes with on_failure drop"):
        Experiment(min_replies=3)
