"""An engine on which nothing can pass between server and clients but messages."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import xfed.assembly
import xfed.running
from xfed.evaluation.accuracy import Evaluation
from xfed.federation.host import Host, Task, Trained
from xfed.protocol.message import Message


@dataclass
class ByteEngine:
    """Runs clients here, but as if each were far away."""

    host: Host
    downloads: list[Message] = field(default_factory=list)
    uploads: list[Message] = field(default_factory=list)

    def _far_away(self, task: Task) -> tuple[Host, Task]:
        message = Message.from_bytes(task.message.to_bytes())
        return replace(self.host, algorithm=copy.deepcopy(self.host.algorithm)), replace(task, message=message)

    def train(self, tasks: Iterable[Task]) -> Iterator[Trained]:
        for task in tasks:
            host, task = self._far_away(task)
            trained = host.train(task)
            self.downloads.append(task.message)
            self.uploads.append(trained.upload)
            yield replace(trained, upload=Message.from_bytes(trained.upload.to_bytes()))

    def evaluate(self, groups: Iterable[Sequence[Task]]) -> Iterator[Evaluation]:
        for group in groups:
            far = [self._far_away(task) for task in group]
            yield from far[0][0].evaluate([task for _, task in far])

    def close(self) -> None:
        pass


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[ByteEngine]:
    made: list[ByteEngine] = []

    def build(experiment: Any, states: Path, partition: Any, dataset: Any, kernels: Any) -> ByteEngine:
        made.append(ByteEngine(xfed.assembly.build_host(experiment, states, partition, dataset, kernels)))
        return made[-1]

    monkeypatch.setattr(xfed.running, "build_engine", build)
    return made
