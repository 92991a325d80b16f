"""A round's uploads as they stream in: averaged parts are summed and dropped, collected parts kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from xfed.errors import ClientError
from xfed.models.parts import Parts
from xfed.protocol.message import Message

Weighting = Literal["sizes", "uniform"]


class Uploads:
    """Accumulates messages one by one, in the cohort's order.

    Weighted sums are kept in float64: products of a float32 number and a sample count are exact there, so one
    client's average is the client's own numbers, bit for bit.
    """

    def __init__(self, averaged: Parts, collected: Parts, weighting: Weighting, more: Sequence[str] = ()) -> None:
        self._averaged = {part.key for part in averaged}
        self._collected = {part.key for part in collected} | set(more)
        self._weighting = weighting
        self._sums: dict[str, Tensor] = {}
        self._rows: dict[str, list[Tensor]] = {}
        self.clients: list[int] = []
        self.weights: list[int] = []

    def add(self, client: int, message: Message) -> None:
        """Take one upload in."""
        samples = message.values.get("samples", 1)
        assert isinstance(samples, int)
        weight = samples if self._weighting == "sizes" else 1
        self.clients.append(client)
        self.weights.append(weight)
        for name, tensor in message.tensors.items():
            if not torch.isfinite(tensor).all():
                raise ClientError(f"training of client {client} diverged: its {name} is not finite; try a smaller lr")
            if name in self._averaged:
                if name not in self._sums:
                    self._sums[name] = torch.zeros(tensor.shape, dtype=torch.float64)
                self._sums[name].add_(tensor.double(), alpha=weight)
            elif name.partition(".")[0] in self._collected:
                self._rows.setdefault(name, []).append(tensor)
            else:
                raise ValueError(f"upload of client {client} holds {name!r}, which the method never declared")

    def averages(self) -> dict[str, Tensor]:
        """Give Σ p_i w_i per averaged part, p_i = n_i / Σ n_j over this round's clients."""
        total = sum(self.weights)
        return {name: (sums / total).float() for name, sums in self._sums.items()}

    def stack(self, part: Parts | str) -> Tensor:
        """Give a collected part (or other tensor) as clients × numbers: a snapshot in the order of `clients`."""
        return torch.stack(self._rows[part.key if isinstance(part, Parts) else part])
