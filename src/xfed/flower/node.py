"""A node at home: its settings, its data, its personal state on disk, and what of it may leave.

The folder holds `node.yaml`, and for every federation a folder with the briefing, the node's name in it, the personal
state by version, and what the server sent for the final evaluation, from which the node exports its own model.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from xfed.components import BaseSettings, validate
from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import SPLITS, Split
from xfed.data.views import ClientData
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.federation.carrying import keep_states, with_states
from xfed.federation.host import Host
from xfed.files import whole
from xfed.flower.privacy import Blur
from xfed.protocol.message import Message, WireError
from xfed.protocol.words import (
    Briefing,
    Evaluated,
    EvaluateTask,
    Failed,
    Task,
    Trained,
    TrainTask,
    Word,
    from_bytes,
    to_bytes,
)
from xfed.running import partition_of
from xfed.runs.store import ClientStore
from xfed.threads import single_thread
from xfed.yaml_text import parse

KEPT_VERSIONS = 3
"""Versions of the personal state that stay: the server may come back to one of its last two checkpoints."""


class NodeSettings(BaseSettings):
    """What the owner of a node decides, in `node.yaml`."""

    data: dict[str, Any] = Field(
        default_factory=lambda: {"dataset": "digits"},
        description="the node's data, with the settings of `xfed run`: dataset, its own settings, how it is dealt out",
    )
    client: NonNegativeInt = Field(0, description="which of the clients that the data is dealt out to this node is")
    device: str = Field("cpu", description="torch device")
    traces: bool = Field(False, description="what every exit says of every test sample may leave the node")
    model: bool = Field(False, description="the final personal model may leave the node")
    plugins: bool = Field(False, description="code that the server sends as plug-in may be run here")
    clip: PositiveFloat | None = Field(None, description="largest norm of an update that leaves the node")
    noise: NonNegativeFloat = Field(0.0, description="Gaussian noise on updates, in multiples of clip")

    @model_validator(mode="after")
    def _agreeing(self) -> NodeSettings:
        if self.noise and self.clip is None:
            raise ValueError("noise is in multiples of clip; give clip too")
        return self


@dataclass(frozen=True)
class Introduction:
    """What a node says of itself when it joins: sizes and the kind of data, never samples or class counts."""

    name: str
    """Random, drawn on the node and kept there: who knows it is this node."""
    wish: int
    sizes: tuple[int, int, int]
    majority: float
    """Share of its test samples that are of its most frequent training class: the trivial answer."""
    card: dict[str, Any]
    briefed: bool
    clip: float
    noise: float


@dataclass(frozen=True)
class Node:
    """A node's folder, opened."""

    folder: Path
    settings: NodeSettings

    @classmethod
    def open(cls, folder: Path) -> Node:
        """Read a node's settings."""
        path = folder / "node.yaml"
        try:
            values = parse(path.read_text(encoding="utf-8"), f"node file {str(path)!r}")
        except OSError as error:
            raise InputError(f"node file {str(path)!r} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"node file {str(path)!r} is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(values, Mapping):
            raise InputError(f"node file {str(path)!r} must hold 'key: value' lines")
        return cls(folder, validate(NodeSettings, values, prefix="node."))

    @cached_property
    def samples(self) -> tuple[Dataset, Split]:
        """Load the node's own data, and cut it into train, calibration and test samples.

        Paths in the node's settings are meant from the node's folder, wherever its SuperNode was started.
        """
        values = {"clients": 1, **self.settings.data}
        if values["clients"] == 1 and "partition" not in values:
            values.setdefault("partition_by", "iid")
        with chdir(self.folder):
            described = Experiment.from_mapping(values)
            dataset = described.load_data()
            partition = partition_of(described, dataset)
        if self.settings.client >= len(partition):
            raise InputError(f"node.client is {self.settings.client}; the data has clients 0 to {len(partition) - 1}")
        return dataset, partition[self.settings.client]

    def home(self, federation: str) -> Path:
        """Name the folder of a federation; its name comes from the server, so it must be a plain one."""
        if not (federation.isalnum() and federation.isascii() and len(federation) <= 64):
            raise WireError(f"a federation called {federation!r}")
        return self.folder / "federations" / federation

    def federations(self) -> list[str]:
        """List the federations that the node took part in, the newest last."""
        homes = (self.folder / "federations").glob("*/briefing")
        return [path.parent.name for path in sorted(homes, key=lambda path: path.stat().st_mtime)]

    # Joining

    def introduce(self, federation: str) -> Introduction:
        """Say who this is."""
        dataset, split = self.samples
        labels = dataset.labels.cpu().numpy()
        trained = np.bincount(labels[np.concatenate([split.train, split.calibration])], minlength=len(dataset.classes))
        majority = float((labels[split.test] == trained.argmax()).mean()) if len(split.test) else 0.0
        sizes = [len(getattr(split, part)) for part in SPLITS]
        return Introduction(
            name=self._name(federation),
            wish=self.settings.client,
            sizes=(sizes[0], sizes[1], sizes[2]),
            majority=majority,
            card=replace(dataset.card, name="federation", sha256="").to_json(),
            briefed=(self.home(federation) / "briefing").is_file(),
            clip=self.settings.clip or 0.0,
            noise=self.settings.noise,
        )

    def _name(self, federation: str) -> str:
        path = self.home(federation) / "name"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with whole(path, private=True) as temporary:
                temporary.write_text(secrets.token_hex(16), encoding="utf-8")
        return path.read_text(encoding="utf-8")

    def take_briefing(self, federation: str, briefing: Briefing) -> None:
        """Keep what client work needs to know."""
        with whole(self.home(federation) / "briefing") as temporary:
            temporary.write_bytes(to_bytes([briefing]))

    def briefing(self, federation: str) -> Briefing:
        """Read what client work needs to know."""
        try:
            [briefing] = from_bytes((self.home(federation) / "briefing").read_bytes())
        except (OSError, ValueError):
            raise WireError(f"a task of federation {federation!r}, which this node was never briefed for") from None
        assert isinstance(briefing, Briefing)
        if briefing.plugins and not self.settings.plugins:
            name = next(iter(briefing.plugins)).partition("-")[2]
            raise InputError(f"plug-in {name!r} is not run here: node.plugins is off")
        return briefing

    # Working

    def states(self, federation: str) -> ClientStore:
        """Open the personal state, by version."""
        return ClientStore(self.home(federation) / "state")

    def host(self, federation: str) -> Host:
        """Set up for client work."""
        dataset, split = self.samples
        views = ClientData.of(dataset, split)
        return Host.of(self.briefing(federation), lambda client: views, self.settings.device)

    def answer(self, federation: str, task: Task) -> Word:
        """Do one task; what comes back is what the owner allows to leave."""
        try:
            states = self.states(federation)
            if task.state is not None and not states.path(task.client, task.state).is_file():
                return Failed(task.client, f"has no state of round {task.state}")
            if isinstance(task, EvaluateTask):
                task = replace(
                    task, traces=task.traces and self.settings.traces, model=task.model and self.settings.model
                )
            with single_thread():
                [result] = keep_states(self.host(federation).answer(with_states([task], states)), states)
            self._tidy(states, task)
            if isinstance(task, EvaluateTask) and task.final and isinstance(result, Evaluated):
                with whole(self.home(federation) / "final") as temporary:
                    temporary.write_bytes(to_bytes([task]))
            return self._blurred(task, result)
        except (InputError, WireError) as error:
            return Failed(task.client, f"failed: {error}")

    def _blurred(self, task: Task, result: Trained | Evaluated | Failed) -> Word:
        if isinstance(task, TrainTask) and isinstance(result, Trained) and self.settings.clip is not None:
            blur = Blur(self.settings.clip, self.settings.noise)
            return replace(result, upload=blur.apply(task.message, result.upload))
        return result

    @staticmethod
    def _tidy(states: ClientStore, task: Task) -> None:
        """Delete versions that no checkpoint of the server can ask for any more, and those of rounds undone."""
        folder = states.path(task.client, 0).parent
        if not isinstance(task, TrainTask) or not folder.is_dir():
            return
        found = sorted(int(p.stem.split("-")[1]) for p in folder.glob(f"{task.client:06d}-*.safetensors"))
        needed = [v for v in found if v <= task.round and v != task.state][-(KEPT_VERSIONS - 1) :]
        for version in found:
            if version not in needed and version != task.state:
                os.unlink(states.path(task.client, version))


def card_of(introduction: Introduction) -> DataCard:
    """Give the kind of data that a node has."""
    return DataCard.from_json(introduction.card)


def final_task(node: Node, federation: str) -> EvaluateTask:
    """Read what the server sent for the final evaluation."""
    path = node.home(federation) / "final"
    if not path.is_file():
        raise InputError(
            f"{str(node.folder)!r} holds no final model of federation {federation!r}; it has not ended yet"
        )
    [task] = from_bytes(path.read_bytes())
    assert isinstance(task, EvaluateTask)
    return replace(task, message=Message({n: t.clone() for n, t in task.message.tensors.items()}, task.message.values))
