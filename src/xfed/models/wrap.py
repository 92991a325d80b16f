"""Early exits for a network that has none: cut a backbone into stages and put an exit after each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from xfed.errors import InputError
from xfed.models.network import EarlyExitNetwork, Exit, ExitPlacement, StageState, hidden

Channels = Literal["auto", "first", "last"]


class VectorExit(Exit):
    """One linear layer with bias on a stage that puts out vectors: nothing to pool."""

    def pool(self, state: StageState) -> Tensor:
        """Take the vectors as they are."""
        return hidden(state)


class ChannelsLastExit(Exit):
    """Average over all positions and one linear layer with bias, where the channels come last, as in sequences."""

    def pool(self, state: StageState) -> Tensor:
        """Average batch × positions × channels over all positions: batch × channels."""
        return hidden(state).flatten(1, -2).mean(1)


def split(
    backbone: nn.Sequential | Sequence[nn.Module],
    cuts: Sequence[int],
    classes: int,
    example_shape: tuple[int, ...],
    exits: ExitPlacement = "all",
    *,
    dtype: torch.dtype = torch.float32,
    channels: Channels = "auto",
) -> EarlyExitNetwork:
    """Cut a backbone before the layers at `cuts` and put an exit after each stage.

    `cuts=[3, 6]` makes three stages of layers 0 to 2, 3 to 5 and 6 to the end. An exit averages over positions
    where there are any, and is one linear layer with bias. Its width is found by running one input of zeros of
    `example_shape` and `dtype` (`torch.long` for token ids). Maps (batch × channels × height × width) have their
    channels first, sequences (batch × positions × channels) last, unless `channels` says otherwise.

    The network takes the layers over; it does not copy them.
    """
    layers = list(backbone)
    bounds = [0, *cuts, len(layers)]
    if any(start >= stop for start, stop in pairwise(bounds)):
        raise InputError(
            f"cuts {list(cuts)} do not divide a backbone of {len(layers)} layers; "
            f"give rising positions between 1 and {len(layers) - 1}"
        )
    stages = [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(bounds)]
    for stage in stages:
        if getattr(stage[0], "inplace", False):
            stage[0].inplace = False  # type: ignore[assignment]  # the exit before it needs what it would overwrite
    outputs = _outputs(stages, torch.zeros((1, *example_shape), dtype=dtype))
    heads = [_exit(number, output, classes, channels) for number, output in enumerate(outputs, 1)]
    return EarlyExitNetwork.of(stages, heads, exits)


@torch.no_grad()
def _outputs(stages: Sequence[nn.Module], state: Tensor) -> list[Tensor]:
    """Run one example, leaving running statistics alone."""
    outputs = []
    for number, stage in enumerate(stages, 1):
        was_training = stage.training
        try:
            state = stage.eval()(state)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = str(error).split("\n")[0]
            raise InputError(f"stage {number} of the backbone does not take its input: {reason}") from error
        stage.train(was_training)
        outputs.append(state)
    return outputs


def _exit(number: int, output: object, classes: int, channels: Channels) -> Exit:
    if not isinstance(output, Tensor) or output.ndim < 2:
        raise InputError(
            f"stage {number} of the backbone puts out {type(output).__name__}, where an exit needs one tensor, "
            "batch × channels or with positions; cut elsewhere or write the stages yourself"
        )
    if output.ndim == 2:
        return VectorExit(output.shape[1], classes)
    if channels == "last" or (channels == "auto" and output.ndim == 3):
        return ChannelsLastExit(output.shape[-1], classes)
    return Exit(output.shape[1], classes)
