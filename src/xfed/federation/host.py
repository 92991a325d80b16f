"""Where clients live during a simulation: everything that one device would have, for any client asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import Tensor

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.data.views import ClientData
from xfed.evaluation.accuracy import Evaluation, evaluate
from xfed.federation.store import ClientStore
from xfed.files import write_tensors
from xfed.models.costs import measure
from xfed.models.layout import ModelState
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.client import Client, Personal, Schedule
from xfed.protocol.message import Message
from xfed.training.trainer import Trainer


@dataclass(frozen=True)
class Task:
    """One piece of client work: train on a message, or evaluate (and perhaps save) the model it makes."""

    client: int
    round: int
    message: Message
    state_version: int | None
    save_to: Path | None = None


def named(tasks: Sequence[Task]) -> str:
    """Name the clients of some tasks, for people."""
    clients = [str(task.client) for task in tasks]
    return f"client{'s' * (len(tasks) > 1)} {', '.join(clients)} in round {tasks[0].round}"


@dataclass(frozen=True)
class Trained:
    """What comes back from training: the upload, and what the work cost (telemetry, not a message)."""

    upload: Message
    loss: float
    macs: int
    has_state: bool


class Engine(Protocol):
    """Where clients run. Results come back in the order of the tasks, whoever finished first."""

    def train(self, tasks: Iterable[Task]) -> Iterator[Trained]:
        """Train clients."""

    def evaluate(self, groups: Iterable[Sequence[Task]]) -> Iterator[Evaluation]:
        """Evaluate clients, those of a group in one place. Groups are taken as they are needed."""

    def close(self) -> None:
        """Let go of workers."""


@dataclass(frozen=True)
class Host:
    """Runs client work in this process, one client at a time, on one resident network."""

    algorithm: Algorithm
    trainer: Trainer
    initial: ModelState
    dataset: Dataset
    partition: Partition
    schedule: Schedule
    states: ClientStore
    seed: int
    levels: dict[Level, tuple[Trainer, ModelState]] = field(default_factory=dict)

    def client(self, task: Task, whole: bool = True) -> Client:
        """Bring a client to life: its views, its state, its streams; with the whole network, or what it carries."""
        carried = None if whole else self._carried(task.client)
        trainer, initial = carried or (self.trainer, self.initial)
        return Client(
            id=task.client,
            round=task.round,
            data=ClientData.of(self.dataset, self.partition[task.client]),
            state=self.states.read(task.client, task.state_version),
            initial=initial,
            trainer=trainer,
            schedule=self.schedule,
            seed=self.seed,
        )

    def _carried(self, client: int) -> tuple[Trainer, ModelState] | None:
        """Give the smaller network that a client carries, built once per level; nothing for the whole one."""
        full = self.trainer
        level = self.algorithm.level(client, len(self.partition), full.layout.exits)
        if level is None:
            return None
        if level not in self.levels:
            subnetworks = Subnetworks(full.network, full.layout)
            network, layout = subnetworks.carve(level)
            costs = measure(network.to("cpu"), self.dataset.example())
            trainer = Trainer(network, layout, costs, full.device, full.batch_size)
            self.levels[level] = (trainer, subnetworks.initial(self.initial, level))
        return self.levels[level]

    def train(self, task: Task) -> Trained:
        """Train a client and write its new state; the state counts once the round is complete."""
        client = self.client(task, whole=False)
        upload = self.algorithm.train(client, task.message)
        if client.state:
            self.states.write(client.id, task.round, client.state)
        return Trained(upload, client.meter.loss, client.meter.macs, bool(client.state))

    def evaluate(self, tasks: Sequence[Task]) -> list[Evaluation]:
        """Evaluate clients' personal models on their test samples.

        Where models are saved (at the very end), the calibration samples are evaluated too.
        """
        found = evaluate(map(self._personal, tasks), calibration=tasks[0].save_to is not None)
        return [found[task.client] for task in tasks]

    def _personal(self, task: Task) -> tuple[Client, Personal]:
        client = self.client(task)
        personal = self.algorithm.personal(client, task.message)
        if task.save_to is not None:
            self._save(task.save_to, client.id, personal)
        return client, personal

    def _save(self, folder: Path, client: int, personal: Personal) -> None:
        """Save named tensors: what clients share once, by its digest, and each client's own beside it."""
        layout = self.trainer.layout
        shared = layout.named(personal.shared)
        name = f"shared-{_digest(shared)}.safetensors" if shared else ""
        if shared and not (folder / name).exists():
            write_tensors(folder / name, shared)
        write_tensors(client_model(folder, client), layout.named(personal.own), {"shared": name})


def client_model(folder: Path, client: int) -> Path:
    """Name the file of a client's final model."""
    return folder / f"client-{client:06d}.safetensors"


def _digest(tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name, tensor in tensors.items():
        content.update(name.encode())
        content.update(tensor.contiguous().numpy().data)
    return content.hexdigest()[:16]
