"""Features of a frozen backbone: computed in the first epoch of a phase, looked up in the others.

The numbers are those of running the backbone in every epoch, bit for bit as far as a sample's features do not depend on
the samples beside it. torch's kernels keep that for batches of two and more, but round differently for a single sample:
a batch of one is therefore always run, and what is kept of its sample comes from a batch of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from xfed.models.network import EarlyExitNetwork, Exit, ExitOutputs, Normalisation

LIMIT = 2**28
"""Bytes of features to keep at most; a larger view runs the backbone in every epoch."""


class FrozenFeatures:
    """What exits see of each sample of a view, kept as it comes by.

    Only where it is the same in every epoch: it gives up as soon as the network draws random numbers (dropout).
    """

    def __init__(self, network: EarlyExitNetwork, exits: Sequence[int], samples: int) -> None:
        self._network = network
        self._heads: dict[int, Exit] = {j: network.exits[j] for j in exits}  # type: ignore[misc]
        self._samples = samples
        self._kept: dict[int, Tensor] | None = {}
        self._seen = 0

    @staticmethod
    def apply_to(network: EarlyExitNetwork, exits: Sequence[int]) -> bool:
        """Tell whether a sample's features depend on the sample alone and exits are one linear layer behind them.

        Normalisation in the backbone may mix in the rest of the batch, and learns on.
        """
        normalised = any(isinstance(module, Normalisation) for module in network.stages.modules())
        return not normalised and all(is_one_linear_layer(network.exits[j]) for j in exits)

    def knows(self, positions: Tensor) -> bool:
        """Tell whether a batch can be looked up."""
        return self._kept is not None and self._seen == self._samples and len(positions) > 1

    def look_up(self, positions: Tensor) -> ExitOutputs:
        """Give what the network would give, from the features kept."""
        assert self._kept is not None
        features = {j: kept.index_select(0, positions) for j, kept in self._kept.items()}
        return ExitOutputs(features, {j: head.linear(features[j]) for j, head in self._heads.items()})

    def run(self, inputs: Tensor, positions: Tensor) -> tuple[ExitOutputs, int]:
        """Run the network on a batch and keep its features; give how many samples had to run once more."""
        exits = list(self._heads)
        before = _random_state(inputs.device)
        outputs: ExitOutputs = self._network(inputs, exits)
        if not torch.equal(before, _random_state(inputs.device)):
            self._kept = None
        if self._kept is None or self._seen == self._samples:
            return outputs, 0
        if len(positions) > 1:
            self._keep(outputs.features, positions)
            return outputs, 0
        pair = self._network(torch.cat([inputs, inputs]), exits).features
        self._keep({j: features[:1] for j, features in pair.items()}, positions)
        return outputs, 2

    def _keep(self, features: Mapping[int, Tensor], positions: Tensor) -> None:
        assert self._kept is not None
        if not self._kept:
            if sum(f[0].nbytes for f in features.values()) * self._samples > LIMIT:
                self._kept = None
                return
            self._kept = {j: f.new_empty(self._samples, *f.shape[1:]) for j, f in features.items()}
        for j, kept in self._kept.items():
            kept.index_copy_(0, positions, features[j])
        self._seen += len(positions)


def is_one_linear_layer(head: nn.Module) -> bool:
    """Tell whether an exit's features go through its linear layer and nothing else."""
    return isinstance(head, Exit) and type(head).forward is Exit.forward and list(head.children()) == [head.linear]


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.random.get_rng_state()
