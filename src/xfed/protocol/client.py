"""What a method sees on a device: its data views, its own state, random streams and the trainer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from xfed.components import BaseSettings
from xfed.data.views import ClientData
from xfed.models.layout import ModelState
from xfed.models.network import ExitOutputs
from xfed.models.parts import Parts
from xfed.protocol.message import Message
from xfed.randomness import Purpose
from xfed.training.objectives import Objective
from xfed.training.optimizers import OptimizerKind
from xfed.training.refit import LinearExit, refit
from xfed.training.trainer import Meter, Phase, Stream, Trainer

PART_NAMES = tuple(part.key for part in Parts.MODEL | Parts.STATISTICS)


class Schedule(BaseSettings):
    """The local training everyone shares: η_t = rate · decay^(t−1) in round t, counted from 1."""

    epochs: int
    rate: float
    decay: float
    momentum: float
    weight_decay: float
    rounds: int
    optimizer: OptimizerKind = "sgd"

    def rate_in(self, round: int) -> float:
        """Give the learning rate of a round."""
        return self.rate * self.decay ** (round - 1)


@dataclass
class Client:
    """One client during one piece of work. It never sees another client's data, state or parameters.

    `state` is this client's own and outlives the round; a method replaces entries, never writes into them.
    """

    id: int
    round: int
    data: ClientData
    state: dict[str, Tensor]
    initial: ModelState
    trainer: Trainer
    schedule: Schedule
    seed: int
    classes: int
    """Number of classes of the task, which all clients share; a client may hold samples of few of them."""
    final: bool = False
    """This is the run's last evaluation: some methods tune a model before it."""
    meter: Meter = field(default_factory=Meter)

    @property
    def exits(self) -> int:
        """Number of exits of this client's network."""
        return len(self.trainer.network.exits)

    @property
    def samples(self) -> int:
        """Number of training samples: what size-weighted averaging weighs by."""
        return len(self.data.train)

    def class_counts(self) -> Tensor:
        """Count the training samples of each class."""
        return torch.bincount(self.data.train.labels(), minlength=self.classes)

    def model(self, *sources: Mapping[str, Tensor]) -> ModelState:
        """Assemble a model: the common initial one, overlaid by named parts, later sources over earlier ones.

        What else a source holds, such as a method's own tensors in a client's state, is no part of a model.
        """
        model = self.initial.clone()
        for source in sources:
            self.trainer.layout.unpack(model, {name: source[name] for name in PART_NAMES if name in source})
        return model

    def complete(self, source: Mapping[str, Tensor], parts: Parts) -> dict[str, Tensor]:
        """Give named parts from a source, and from the common initial model where it lacks them."""
        layout = self.trainer.layout
        initial = {p.key: p for p in parts if layout.count(p)}
        return {key: source[key] if key in source else layout.gather(self.initial, p) for key, p in initial.items()}

    def phase(self, objective: Objective, exits: Collection[int] | None = None, parts: Parts = Parts.MODEL) -> Phase:
        """Describe a phase with the round's common settings."""
        common = self.schedule
        return Phase(
            objective=objective,
            epochs=common.epochs,
            rate=common.rate_in(self.round),
            parts=parts,
            exits=exits,
            momentum=common.momentum,
            weight_decay=common.weight_decay,
            optimizer=common.optimizer,
        )

    def train(self, model: ModelState, phases: Sequence[Phase]) -> ModelState:
        """Train on this client's training view."""
        stream = Stream(self.seed, self.id, self.round)
        return self.trainer.train(model, self.data.train, phases, stream, self.meter)

    def tune(self, model: ModelState, phases: Sequence[Phase]) -> ModelState:
        """Train a copy for the final evaluation, with random streams of its own; no round sees the result."""
        stream = Stream(self.seed, self.id, self.round, batches=Purpose.TUNING)
        return self.trainer.train(model, self.data.train, phases, stream, self.meter)

    def named(self, model: ModelState) -> dict[str, Tensor]:
        """Look at a model's parameters by name, on the training device."""
        return self.trainer.layout.views(model.to(self.trainer.device))

    def outputs(self, model: ModelState, exits: Collection[int]) -> ExitOutputs:
        """Run a model over the training view without training; the cost is counted."""
        return self.trainer.outputs(model, self.data.train, exits, self.meter)

    def outputs_by_batch(self, model: ModelState, exits: Collection[int]) -> ExitOutputs:
        """Run a model over the training view as training sees it: BatchNorm normalises by the batch at hand.

        Without BatchNorm the same as `outputs`. Statistics stay as they are, and the cost is counted.
        """
        stream = Stream(self.seed, self.id, self.round)
        return self.trainer.outputs_by_batch(model, self.data.train, exits, stream, self.meter)

    def refit(self, model: ModelState, exits: Collection[int], rho: float) -> ModelState:
        """Fit linear exits to the backbone that the model has now, on the training view; the cost is counted."""
        features = self.outputs(model, exits).features
        labels = self.data.train.labels().to(self.trainer.device)
        fitted = ModelState(model.parameters.clone(), model.statistics)
        tensors = self.trainer.layout.views(fitted)
        for j in exits:
            weight, bias = (tensors[f"exits.{j}.linear.{kind}"] for kind in ("weight", "bias"))
            start = LinearExit(weight.to(self.trainer.device), bias.to(self.trainer.device))
            found, macs = refit(start, features[j], labels, rho)
            weight.copy_(found.weight)
            bias.copy_(found.bias)
            self.meter.macs += macs
        return fitted

    def pack(self, model: ModelState, parts: Parts) -> dict[str, Tensor]:
        """Copy named parts of a model."""
        return self.trainer.layout.pack(model.to(self.initial.parameters.device), parts)


@dataclass(frozen=True)
class Personal:
    """A client's model for evaluation and export, as an overlay.

    What came with the server's message for everyone alike stands beside what is this client's own, so that
    clients on one backbone can be stored (and evaluated) together.
    """

    shared: Mapping[str, Tensor]
    own: Mapping[str, Tensor]

    def having(self, parts: Mapping[str, Tensor]) -> Personal:
        """Give this model with further parts of the client's own, which it then shares with nobody."""
        shared = {name: tensor for name, tensor in self.shared.items() if name not in parts}
        return Personal(shared, {**self.own, **parts})


def overlay(message: Message, state: Mapping[str, Tensor], alike: Parts) -> Personal:
    """Split a message into what is alike for everyone and what is the client's, and add its own parts."""
    names = {part.key for part in alike}
    shared = {name: tensor for name, tensor in message.tensors.items() if name in names}
    own = {**state, **message.tensors}
    return Personal(shared, {name: tensor for name, tensor in own.items() if name in PART_NAMES and name not in names})
