"""What running and training a network costs, in multiply-accumulate operations (MACs).

Two conventions. Exact, used everywhere: convolutions, linear layers and the
matrix products of attention; one multiply and add together is one MAC; no bias, normalisation or pooling.
Thop, to compare with the paper's figures for image networks: the same, plus 4 for each element of a BatchNorm
and k + 1 for each output of a global average pool over k positions. In both, the cost of leaving at an exit
includes every exit passed on the way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from xfed.models.counting import counting
from xfed.models.network import EarlyExitNetwork, StageState


@dataclass(frozen=True)
class Costs:
    """MACs of one sample: per stage, per exit, and of the very first layer (whose input needs no gradient)."""

    stages: tuple[int, ...]
    exits: tuple[int, ...]
    places: tuple[int, ...]
    first_layer: int
    thop: Costs | None = None
    """The same in thop's convention; nothing where that does not apply, as for attention."""

    def forward(self, exits: Collection[int]) -> int:
        """Count a forward pass that evaluates these exits."""
        deepest = max(self.places[j] for j in exits)
        return sum(self.stages[: deepest + 1]) + sum(self.exits[j] for j in exits)

    def leaving_at(self, exit_index: int) -> int:
        """Count an inference that leaves at this exit, having evaluated all exits before it."""
        return self.forward(range(exit_index + 1))

    def static(self) -> int:
        """Count an inference of the same network without early exits: all stages and the last exit alone."""
        return self.forward([len(self.exits) - 1])

    def training(self, exits: Collection[int], backbone_trains: bool, exits_train: bool) -> int:
        """Count a training step: forward, gradients of the weights that train, gradients passed downwards.

        A layer's weight gradient costs as much as its forward pass, and so does its input gradient; a product
        of two activations (attention) has two input gradients instead. With a frozen backbone nothing is
        passed below the exits.
        """
        heads = sum(self.exits[j] for j in exits)
        backbone = self.forward(exits) - heads
        backward = heads * exits_train
        if backbone_trains:
            backward += heads + 2 * backbone - self.first_layer
        return backbone + heads + backward

    def on_features(self, exits: Collection[int], exits_train: bool) -> int:
        """Count a training step of exits alone, on features computed before."""
        return sum(self.exits[j] for j in exits) * (1 + exits_train)


def count_costs(network: EarlyExitNetwork, example: Tensor) -> Costs:
    """Count by running the network once, on the first sample of `example`.

    Token ids have no gradient either, but the embedding behind them has: then every layer passes its gradient on.
    """
    exact: dict[str, list[int]] = {"stages": [], "exits": []}
    thop: dict[str, list[int | None]] = {"stages": [], "exits": []}
    first_layer = 0
    was_training = network.training
    network.eval()
    state: StageState = example[:1]
    with counting() as counter:

        def note(kind: str) -> None:
            exact[kind].append(counter.macs)
            thop[kind].append(counter.thop)
            counter.reset()

        for index in range(len(network.stages)):
            state = network.stage(index, state)
            if index == 0 and example.is_floating_point():
                first_layer = next(iter(counter.products), 0)
            note("stages")
            if index in network.places:
                network.exits[network.places.index(index)](state)
                note("exits")
    network.train(was_training)
    known = {kind: tuple(count for count in counts if count is not None) for kind, counts in thop.items()}
    applies = all(len(known[kind]) == len(exact[kind]) for kind in known)
    return Costs(
        tuple(exact["stages"]),
        tuple(exact["exits"]),
        network.places,
        first_layer,
        Costs(known["stages"], known["exits"], network.places, first_layer) if applies else None,
    )
