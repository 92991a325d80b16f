"""Smaller networks cut out of a full one, for clients that cannot carry all of it.

A level keeps the first exits and the stages below them (DepthFL), and the leading share of every layer's channels
(ScaleFL). Its parameters are entries of the full network's, so server and clients agree on which is which.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from torch import Tensor, nn

from xfed.errors import InputError
from xfed.models.layout import Layout, ModelState
from xfed.models.network import EarlyExitNetwork
from xfed.models.parts import Parts


@dataclass(frozen=True)
class Level:
    """How much of the full network a client carries."""

    exits: int
    width: Fraction = Fraction(1)
    """Share of every layer's channels, as an exact fraction: ⌊7/10 · 90⌋ is 63, where floats give 62."""


class NarrowConv2d(nn.Conv2d):
    """A convolution with part of its channels; its output is divided by the share, to keep its scale."""

    share: float = 1.0

    def forward(self, inputs: Tensor) -> Tensor:
        """Convolve and rescale."""
        return super().forward(inputs) / self.share


@dataclass(eq=False)
class Subnetworks:
    """The full network, and what each level has of it."""

    network: EarlyExitNetwork
    layout: Layout
    _indices: dict[Level, dict[str, Tensor]] = field(default_factory=dict, compare=False, repr=False)

    def carve(self, level: Level) -> tuple[EarlyExitNetwork, Layout]:
        """Build a level's network (its numbers are to be filled in) and its layout, parts named as in the full one."""
        full = self.network
        kept = EarlyExitNetwork(
            copy.deepcopy(list(full.stages))[: full.places[level.exits - 1] + 1],
            copy.deepcopy(list(full.exits))[: level.exits],
            full.places[: level.exits],
        )
        if level.width < 1:
            _narrow(kept, level.width)
        return kept, Layout.of(kept, exits=self.layout.exits)

    def indices(self, level: Level) -> dict[str, Tensor]:
        """Tell where each number of a level's packed parts stands in the full network's packed parts."""
        if level not in self._indices:
            self._indices[level] = self.carve(level)[1].indices_in(self.layout)
        return self._indices[level]

    def cut(self, packed: dict[str, Tensor], level: Level) -> dict[str, Tensor]:
        """Take a level's numbers out of the full network's packed parts; parts it does not have are left out."""
        indices = self.indices(level)
        return {name: tensor[indices[name]] for name, tensor in packed.items() if name in indices}

    def initial(self, state: ModelState, level: Level) -> ModelState:
        """Take a level's initial model out of the full one's."""
        layout = self.carve(level)[1]
        cut = ModelState(torch.zeros(layout.size), torch.zeros(layout.statistics_size))
        layout.unpack(cut, self.cut(self.layout.pack(state, Parts.MODEL | Parts.STATISTICS), level))
        return cut


def _narrow(network: EarlyExitNetwork, share: Fraction) -> None:
    """Keep the leading channels of every layer, in place."""

    def channels(count: int) -> int:
        return max(1, int(share * count))

    first = True
    for name, module in list(network.named_modules()):
        parent = network.get_submodule(name.rpartition(".")[0])
        child = name.rpartition(".")[2]
        if isinstance(module, nn.Conv2d):
            if module.groups != 1:
                raise InputError(
                    f"a network with convolutions in {module.groups} groups has no narrower form; levels by width need "
                    "convolutions over all channels"
                )
            inputs = module.in_channels if first else channels(module.in_channels)
            first = False
            narrow = NarrowConv2d(
                inputs,
                channels(module.out_channels),
                module.kernel_size,  # type: ignore[arg-type]
                module.stride,  # type: ignore[arg-type]
                module.padding,  # type: ignore[arg-type]
                module.dilation,  # type: ignore[arg-type]
                bias=module.bias is not None,
                padding_mode=module.padding_mode,
            )
            narrow.share = float(share)
            setattr(parent, child, narrow)
        elif isinstance(module, nn.BatchNorm2d):
            setattr(parent, child, type(module)(channels(module.num_features), module.eps, module.momentum))
        elif isinstance(module, nn.GroupNorm):
            count = channels(module.num_channels)
            groups = next(g for g in range(min(module.num_groups, count), 0, -1) if count % g == 0)
            setattr(parent, child, nn.GroupNorm(groups, count, module.eps))
        elif isinstance(module, nn.Linear) and name.startswith("exits."):
            setattr(parent, child, nn.Linear(channels(module.in_features), module.out_features))
        elif not isinstance(module, EarlyExitNetwork) and list(module.parameters(recurse=False)):
            kind = type(module).__name__
            raise InputError(f"a network with {kind} layers has no narrower form; levels by width need convolutions")
