"""Where clients run. An engine moves words to where a client's data, state and plug-ins are, and words back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from xfed.components import Component, Registry
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.protocol.words import Briefing, Evaluated, EvaluateTask, Failed, Task, Trained, TrainTask


class States(Protocol):
    """Clients' own states by version, for engines on which they do not stay with the clients."""

    def read(self, client: int, version: int | None) -> dict[str, Tensor]:
        """Give one version; nothing for none."""

    def write(self, client: int, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep one version."""


@dataclass(frozen=True)
class Job:
    """A run, as an engine gets it: the briefing, and what this machine holds of a simulation."""

    briefing: Briefing
    dataset: Dataset
    partition: Partition
    states: States
    workers: int | None
    device: str


class Engine(Component):
    """Runs tasks. Results come as they are done; the loop puts them into their fixed order.

    Where a client's state lives is the engine's business: a task names the version to start from, and a result that
    remembers something leaves a version that is named by the task's round.
    """

    imports_script: ClassVar[bool] = False
    """Whether clients see what the running script defines; elsewhere, components must come from files."""

    def open(self, job: Job) -> None:
        """Take a run on, before its first task."""
        raise NotImplementedError

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        """Train clients."""
        raise NotImplementedError

    def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
        """Evaluate clients, those of a group in one place. Groups are taken as they are needed."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of everything."""


class GroupEngine(Engine):
    """An engine that deals groups of tasks out to places; training is groups of one."""

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        """Train clients."""
        for result in self.results((task,) for task in tasks):
            assert isinstance(result, Trained | Failed)
            yield result

    def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
        """Evaluate clients."""
        for result in self.results(groups):
            assert isinstance(result, Evaluated | Failed)
            yield result

    def results(self, groups: Iterable[Sequence[Task]]) -> Iterator[Trained | Evaluated | Failed]:
        """Have groups done, each in one place, and give results as they come."""
        raise NotImplementedError


engines: Registry[Engine] = Registry("engine", Engine, "xfed.engines")
engine = engines.register
