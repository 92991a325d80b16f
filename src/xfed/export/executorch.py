"""A network as an ExecuTorch program with one method per stage, for phones and boards that ONNX Runtime does not reach.

Methods take one sample. They are never joined by a condition inside the program: ExecuTorch runs those in its slow
portable kernels. Who runs the program calls `stage_1`, looks at the logits, and calls `stage_2` only if it must.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

from xfed.errors import InputError
from xfed.models.images import ChannelsLast
from xfed.models.network import EarlyExitNetwork, StageState


class Segment(nn.Module):
    """The way from one exit to the next: from the state before it to the state behind it and the exit's logits."""

    def __init__(self, stages: Sequence[nn.Module], head: nn.Module, last: bool) -> None:
        super().__init__()
        self.stages, self.head, self.last = nn.ModuleList(stages), head, last

    def forward(self, state: Tensor) -> tuple[Tensor, ...]:
        """Give the next state, if there is one, and the logits; states in the usual order, as numpy has them."""
        for stage in self.stages:
            state = stage(state)
        logits = self.head(state)[1]
        return (logits,) if self.last else (state.clone(memory_format=torch.contiguous_format), logits)


def write_program(network: EarlyExitNetwork, example: Tensor, path: Path) -> None:
    """Write a network in evaluation mode, for inputs like `example`; convolutions and products run in XNNPACK."""
    network = _in_usual_order(network)
    programs = {}
    state: StageState = example[:1].contiguous()
    first = 0
    with _quietly(), torch.no_grad():
        for number, (head, place) in enumerate(zip(network.exits, network.places, strict=True), 1):
            if not isinstance(state, Tensor) or not state.is_floating_point():
                raise InputError("ExecuTorch takes networks of images, whose stages hand on one tensor")
            last = number == len(network.exits)
            segment = Segment([network.stages[index] for index in range(first, place + 1)], head, last).eval()
            programs[f"stage_{number}"] = torch.export.export(segment, (state,))
            state, first = segment(state)[0], place + 1
        partitioners = {name: [XnnpackPartitioner()] for name in programs}
        lowered = to_edge_transform_and_lower(programs, partitioner=partitioners).to_executorch()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lowered.buffer)


def _in_usual_order(network: EarlyExitNetwork) -> EarlyExitNetwork:
    """Leave out what asks for another order of an image's numbers: XNNPACK sees to that, and one channel has none."""
    copied = copy.deepcopy(network)
    for module in copied.modules():
        for name, child in module.named_children():
            if isinstance(child, ChannelsLast):
                setattr(module, name, nn.Identity())
    return copied


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the converter's remarks on its own deprecations from people."""
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.setLevel(level)
