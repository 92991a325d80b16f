"""An engine on which nothing can pass between server and clients but words, as bytes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from xfed import Engine, Experiment, Message
from xfed.federation.carrying import keep_states, with_states
from xfed.federation.host import Host, simulated
from xfed.protocol.engine import Job
from xfed.protocol.words import Evaluated, EvaluateTask, Failed, Trained, TrainTask, from_bytes, to_bytes


class ByteEngine(Engine):
    """Runs clients here, but as if each were far away."""

    imports_script = True

    def __init__(self, opened: list[ByteEngine]) -> None:
        super().__init__()
        self.opened = opened
        self.downloads: list[Message] = []
        self.uploads: list[Message] = []

    def open(self, job: Job) -> None:
        self.opened.append(self)
        [briefing] = from_bytes(to_bytes([job.briefing]))
        self.partition, self.dataset, self.states = job.partition, job.dataset, job.states
        self.host = Host.of(briefing, simulated(job.dataset, job.partition, "cpu"), "cpu")

    def _far_away(self, tasks: Sequence[TrainTask] | Sequence[EvaluateTask]) -> list[Trained | Evaluated | Failed]:
        """Do tasks with a copy of the method of their own."""
        there = from_bytes(to_bytes(with_states(tasks, self.states)))
        host = replace(self.host, algorithm=copy.deepcopy(self.host.algorithm))
        return keep_states(from_bytes(to_bytes(host.answer(there))), self.states)

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        for task in tasks:
            self.downloads.append(task.message)
            [result] = self._far_away([task])
            assert isinstance(result, Trained | Failed)
            if isinstance(result, Trained):
                self.uploads.append(result.upload)
            yield result

    def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
        for group in groups:
            for result in self._far_away(group):
                assert isinstance(result, Evaluated | Failed)
                yield result


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[ByteEngine]:
    opened: list[ByteEngine] = []
    monkeypatch.setattr(Experiment, "engine", lambda experiment: ByteEngine(opened))
    return opened
