"""The early-exit network: stages in a row, and exits that answer from what a stage puts out."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from xfed.components import Component, Registry
from xfed.errors import InputError
from xfed.memory import refuse_too_large

ExitPlacement = Literal["all", "last"]
Normalisation = nn.modules.batchnorm._NormBase
"""BatchNorm and InstanceNorm: what may have running statistics."""

StageState = Tensor | tuple[Tensor, ...]
"""What a stage hands to its exit and to the next stage: one tensor, or a tuple whose first is the hidden
representation and whose others travel beside it (a padding mask). Each has the batch as its first dimension."""


def hidden(state: StageState) -> Tensor:
    """Give the hidden representation, without what travels beside it."""
    return state if isinstance(state, Tensor) else state[0]


def rows(state: StageState, chosen: slice | Tensor) -> StageState:
    """Give some samples of a batch's state."""
    return state[chosen] if isinstance(state, Tensor) else tuple(part[chosen] for part in state)


class ExitOutputs(NamedTuple):
    """What the active exits see and say: pooled features and logits, by exit index."""

    features: dict[int, Tensor]
    logits: dict[int, Tensor]


class Exit(nn.Module):
    """Global average pool and one linear layer with bias; other exits pool in another way."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def pool(self, state: StageState) -> Tensor:
        """Average batch × channels × positions over all positions: batch × channels.

        With gradients, a sum and a division: the same bits, but the gradient is divided before it is spread over the
        positions, not after.
        """
        values = hidden(state).flatten(2)
        return values.sum(2) / values.shape[2] if torch.is_grad_enabled() else values.mean(2)

    def forward(self, state: StageState) -> tuple[Tensor, Tensor]:
        """Give features and logits."""
        features = self.pool(state)
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

    def stage(self, index: int, state: StageState) -> StageState:
        """Run one stage, from the inputs or the state before it: the unit that inference executes or skips."""
        result: StageState = self.stages[index](state)
        return result

    def forward(self, inputs: Tensor, active: Collection[int] | None = None) -> ExitOutputs:
        """Run the stages up to the deepest active exit; exits that are not active cost nothing."""
        wanted = sorted(range(len(self.exits)) if active is None else active)
        features, logits = {}, {}
        for index, state in zip(wanted, self.states(inputs, wanted), strict=True):
            features[index], logits[index] = self.exits[index](state)
        return ExitOutputs(features, logits)

    def states(self, inputs: Tensor, active: Sequence[int] | None = None) -> Iterator[StageState]:
        """Give what each active exit answers from, in order, running each stage when it is needed."""
        state: StageState = inputs
        stage = 0
        for index in range(len(self.exits)) if active is None else active:
            while stage <= self.places[index]:
                state = self.stage(stage, state)
                stage += 1
            yield state


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
    """Build the network that everyone starts from: its weights depend on the seed alone.

    Training needs it four times: its numbers, where they started from, their gradients and velocities.
    """
    refuse_too_large(f"model {source.name!r}", 4 * _bytes(source, input_shape, classes, exits), "make it smaller")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = source.build(input_shape, classes, exits)
    _check(source.name, network)
    return network


def _bytes(source: ModelSource, input_shape: tuple[int, ...], classes: int, exits: ExitPlacement) -> int:
    """Count a network's bytes without having it; 0 where it cannot be built without numbers, or not at all."""
    try:
        with torch.device("meta"):
            network = source.build(input_shape, classes, exits)
        return sum(tensor.nbytes for tensor in network.state_dict().values())
    except Exception:  # building it in earnest tells what is wrong, if anything is
        return 0


def _check(name: str, network: EarlyExitNetwork) -> None:
    """Refuse what could not live in one flat vector, cut into parts that travel apart."""
    for module in network.modules():
        if isinstance(module, Normalisation) and module.momentum is None:
            kind = type(module).__name__
            raise InputError(f"model {name!r} has a {kind} layer with momentum=None; a moving average needs a number")
    owner: dict[int, str] = {}
    for key, parameter in network.named_parameters(remove_duplicate=False):
        if id(parameter) in owner:
            raise InputError(
                f"model {name!r} uses one tensor as {owner[id(parameter)]} and as {key}; give each layer its own"
            )
        owner[id(parameter)] = key


def running_statistics(network: EarlyExitNetwork) -> dict[str, Tensor]:
    """Find the running means and variances, by `state_dict` name."""
    return {
        f"{name}.{kind}": getattr(module, kind)
        for name, module in network.named_modules()
        if isinstance(module, Normalisation) and module.running_mean is not None
        for kind in ("running_mean", "running_var")
    }


def refuse_memory(name: str, network: EarlyExitNetwork, example: Tensor) -> None:
    """Refuse a network that remembers, in buffers of its own, what it was trained on.

    Running statistics are a part of a model and stay with their client. Any other buffer would be taken from one
    client to the next, in whatever order a worker meets them.
    """
    statistics = running_statistics(network)
    others = {
        key: buffer
        for key, buffer in network.named_buffers()
        if key not in statistics and not key.endswith(".num_batches_tracked")
    }
    if not others:
        return
    tried = copy.deepcopy(network).train()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        tried(torch.cat([example, example]))
    for key, buffer in tried.named_buffers():
        if key in others and not torch.equal(buffer, others[key]):
            raise InputError(
                f"model {name!r} changes its buffer {key} while it trains, which would pass from client to client; "
                "allowed: running statistics of BatchNorm and InstanceNorm, and buffers that stay as they are"
            )
