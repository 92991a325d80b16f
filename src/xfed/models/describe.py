"""A network in figures: what each stage and exit puts out, weighs and costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xfed.models.costs import Costs, count_costs
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork, Normalisation, StageState, hidden
from xfed.models.parts import Parts

FLOAT_BYTES = 4  # of a number in a message


@dataclass(frozen=True)
class Piece:
    """One stage or exit of a network, for one sample."""

    name: str
    """`stage 1` or `exit 1`: people count from 1."""
    output_shape: tuple[int, ...]
    parameters: int
    statistics: int
    """BatchNorm running means and variances; no parameters, and local by default."""
    macs: int
    """Cumulative, exact: what has been spent when this is done, with every exit passed on the way."""
    thop_macs: int | None
    """The same in thop's convention; None where that does not apply."""

    @property
    def bytes(self) -> int:
        """Size of the parameters in a message."""
        return FLOAT_BYTES * self.parameters


@dataclass(frozen=True)
class Description:
    """Rows in the order in which they run, and the sizes that decide the traffic."""

    rows: list[Piece]
    backbone: int
    """Parameters of all stages together."""
    exits: int
    """Parameters of all exits together."""
    last_exit: int
    """Parameters of the last exit."""
    costs: Costs

    @property
    def last_exit_share(self) -> float:
        """What the last exit adds to the traffic of a method that exchanges the backbone (0.0046 is 0.46 %)."""
        return self.last_exit / self.backbone


@torch.no_grad()
def describe(network: EarlyExitNetwork, example: Tensor) -> Description:
    """Describe a network by running it on the first sample of `example`."""
    costs, layout = count_costs(network, example), Layout.of(network)
    rows: list[Piece] = []
    was_training = network.training
    network.eval()
    state: StageState = example[:1]
    for index, stage in enumerate(network.stages):
        state = network.stage(index, state)
        passed = [j for j, place in enumerate(network.places) if place < index]
        rows.append(_row(f"stage {index + 1}", hidden(state), stage, costs, index, passed))
        if index in network.places:
            number = network.places.index(index)
            _, logits = network.exits[number](state)
            rows.append(_row(f"exit {number + 1}", logits, network.exits[number], costs, index, [*passed, number]))
    network.train(was_training)
    backbone, exits, last_exit = map(layout.count, (Parts.BACKBONE, Parts.EXITS, Parts.LAST_EXIT))
    return Description(rows, backbone, exits, last_exit, costs)


def _row(name: str, output: Tensor, module: nn.Module, costs: Costs, stage: int, exits: list[int]) -> Piece:
    def spent(costs: Costs) -> int:
        return sum(costs.stages[: stage + 1]) + sum(costs.exits[j] for j in exits)

    return Piece(
        name=name,
        output_shape=tuple(output.shape[1:]),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        statistics=sum(
            2 * layer.num_features
            for layer in module.modules()
            if isinstance(layer, Normalisation) and layer.running_mean is not None
        ),
        macs=spent(costs),
        thop_macs=spent(costs.thop) if costs.thop else None,
    )
