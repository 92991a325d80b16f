"""What running and training a network costs, in multiply-accumulate operations (MACs), counted exactly.

Convention: convolution and linear layers, one multiply and add together is one MAC; no bias, normalisation
or pooling. The cost of leaving at an exit includes every exit passed on the way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xfed.models.network import EarlyExitNetwork


@dataclass(frozen=True)
class Costs:
    """MACs of one sample: per stage, per exit, and of the very first layer (whose input needs no gradient)."""

    stages: tuple[int, ...]
    exits: tuple[int, ...]
    places: tuple[int, ...]
    first_layer: int

    def forward(self, exits: Collection[int]) -> int:
        """Count a forward pass that evaluates these exits."""
        deepest = max(self.places[j] for j in exits)
        return sum(self.stages[: deepest + 1]) + sum(self.exits[j] for j in exits)

    def leaving_at(self, exit_index: int) -> int:
        """Count an inference that leaves at this exit, having evaluated all exits before it."""
        return self.forward(range(exit_index + 1))

    def training(self, exits: Collection[int], backbone_trains: bool, exits_train: bool) -> int:
        """Count a training step: forward, gradients of the weights that train, gradients passed downwards.

        A layer's weight gradient costs as much as its forward pass, and so does its input gradient. With a
        frozen backbone nothing is passed below the exits.
        """
        heads = sum(self.exits[j] for j in exits)
        backbone = self.forward(exits) - heads
        backward = heads * exits_train
        if backbone_trains:
            backward += heads + 2 * backbone - self.first_layer
        return backbone + heads + backward


@torch.no_grad()
def measure(network: EarlyExitNetwork, example: Tensor) -> Costs:
    """Count by running the network once on a batch of one and watching its layers."""
    spent: list[int] = []

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        if isinstance(layer, nn.Conv2d):
            spent.append(output[0].numel() * layer.weight[0].numel())
        elif isinstance(layer, nn.Linear):
            spent.append(output[0].numel() * layer.in_features)

    network.eval()
    hooks = [layer.register_forward_hook(count) for layer in network.modules()]
    stages, exits = [], []
    state, first_layer = example, 0
    for index in range(len(network.stages)):
        spent.clear()
        state = network.stage(index, state)
        stages.append(sum(spent))
        if index == 0:
            first_layer = spent[0] if spent else 0
        if index in network.places:
            spent.clear()
            network.exits[network.places.index(index)](state)
            exits.append(sum(spent))
    for hook in hooks:
        hook.remove()
    return Costs(tuple(stages), tuple(exits), network.places, first_layer)
