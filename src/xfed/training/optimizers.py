"""Steps of local training: SGD, Adam and AdamW, each with a memory that begins empty in every phase.

The functional forms of torch's optimizers: no gradients are left behind on the network. What got no gradient is left
alone, its memory included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

OptimizerKind = Literal["sgd", "adam", "adamw"]
SECOND_BETA, EPSILON = 0.999, 1e-8  # as torch has them
ADAM_RATE = 1e-3
"""Learning rate of Adam and AdamW where none is given: those that suit SGD are far too large."""


class Steps:
    """A kind of step on some parameters, with rate, momentum (of Adam: β₁) and weight decay (of AdamW: decoupled)."""

    def __init__(
        self, kind: OptimizerKind, parameters: Sequence[Tensor], rate: float, momentum: float, weight_decay: float
    ) -> None:
        self._kind, self._parameters = kind, parameters
        self._rate, self._momentum, self._weight_decay = rate, momentum, weight_decay
        self._velocities: list[Tensor | None] = [None] * len(parameters)
        self._moments: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    @torch.no_grad()
    def take(self, gradients: Sequence[Tensor | None]) -> None:
        """Take one step along the gradients."""
        moved = [index for index, gradient in enumerate(gradients) if gradient is not None]
        parameters = [self._parameters[index] for index in moved]
        present = [gradient for gradient in gradients if gradient is not None]
        if self._kind == "sgd":
            self._sgd(moved, parameters, present)
        else:
            self._adam(moved, parameters, present)

    def _sgd(self, moved: Sequence[int], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        buffers = [self._velocities[index] for index in moved]
        begun = [buffer is not None for buffer in buffers]
        if any(begun) and not all(begun):  # torch's fused form takes velocities of all or of none
            for kind in (True, False):
                alike = [k for k, each in enumerate(begun) if each == kind]
                self._sgd([moved[k] for k in alike], [parameters[k] for k in alike], [gradients[k] for k in alike])
            return
        sgd(
            parameters,
            gradients,
            buffers,
            has_sparse_grad=False,
            foreach=False,
            fused=True,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=self._rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for index, buffer in zip(moved, buffers, strict=True):
            self._velocities[index] = buffer

    def _adam(self, moved: Sequence[int], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        for index, parameter in zip(moved, parameters, strict=True):
            if index not in self._moments:
                count = torch.zeros((), dtype=torch.float32, device=parameter.device)
                self._moments[index] = torch.zeros_like(parameter), torch.zeros_like(parameter), count
        means, squares, counts = ([self._moments[index][part] for index in moved] for part in range(3))
        step = adam if self._kind == "adam" else adamw
        step(
            parameters,
            gradients,
            means,
            squares,
            [],
            counts,
            foreach=False,
            fused=True,
            amsgrad=False,
            beta1=self._momentum,
            beta2=SECOND_BETA,
            lr=self._rate,
            weight_decay=self._weight_decay,
            eps=EPSILON,
            maximize=False,
        )
