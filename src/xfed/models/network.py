"""The early-exit network: stages in a row, and exits that answer from what a stage puts out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from xfed.components import Component, Registry
from xfed.errors import InputError

ExitPlacement = Literal["all", "last"]


class ExitOutputs(NamedTuple):
    """What the active exits see and say: pooled features and logits, by exit index."""

    features: dict[int, Tensor]
    logits: dict[int, Tensor]


class Exit(nn.Module):
    """Global average pool and one linear layer with bias (spec section 1.1)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def pool(self, maps: Tensor) -> Tensor:
        """Average over all positions: batch × channels."""
        return maps.flatten(2).mean(2)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Give features and logits."""
        features = self.pool(maps)
        return features, self.linear(features)


class EarlyExitNetwork(nn.Module):
    """A backbone of stages with exits after some or all of them.

    `places[j]` is the stage after which exit j sits; the last exit always sits after the last stage. Exits are
    counted from 0 in code and from 1 in anything people read.
    """

    def __init__(self, stages: Sequence[nn.Module], exits: Sequence[nn.Module], places: Sequence[int]) -> None:
        super().__init__()
        if len(exits) != len(places) or list(places) != sorted(set(places)) or places[-1] != len(stages) - 1:
            raise ValueError("exits need rising places, the last one after the last stage")
        self.stages = nn.ModuleList(stages)
        self.exits = nn.ModuleList(exits)
        self.places = tuple(places)

    @classmethod
    def of(cls, stages: Sequence[nn.Module], exits: Sequence[nn.Module], placement: ExitPlacement) -> EarlyExitNetwork:
        """Assemble from one stage and one exit per depth: with all exits, or with the last alone."""
        if placement == "last":
            return cls(stages, exits[-1:], [len(stages) - 1])
        return cls(stages, exits, range(len(stages)))

    def stage(self, index: int, state: Tensor) -> Tensor:
        """Run one stage: the unit that inference executes or skips."""
        result: Tensor = self.stages[index](state)
        return result

    def forward(self, inputs: Tensor, active: Collection[int] | None = None) -> ExitOutputs:
        """Run the stages up to the deepest active exit; exits that are not active cost nothing."""
        wanted = range(len(self.exits)) if active is None else active
        features, logits = {}, {}
        state, stage = inputs, 0
        for index in sorted(wanted):
            while stage <= self.places[index]:
                state = self.stage(stage, state)
                stage += 1
            features[index], logits[index] = self.exits[index](state)
        return ExitOutputs(features, logits)


class ModelSource(Component):
    """A family of networks; subclasses build one for given inputs and document their settings."""

    def build(self, input_shape: tuple[int, ...], classes: int, exits: ExitPlacement) -> EarlyExitNetwork:
        """Build a network with freshly drawn weights (torch's global generator)."""
        raise NotImplementedError


models: Registry[ModelSource] = Registry("model", ModelSource, "xfed.models")
model = models.register


def seeded(
    source: ModelSource, input_shape: tuple[int, ...], classes: int, exits: ExitPlacement, seed: int
) -> EarlyExitNetwork:
    """Build the network that everyone starts from: its weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = source.build(input_shape, classes, exits)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is None:
            raise InputError(
                f"model {source.name!r} has a BatchNorm layer with momentum=None; a moving average needs a number"
            )
    return network
