"""A round's uploads as they stream in: averaged parts are summed and dropped, collected parts kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from xfed.errors import ClientError
from xfed.models.parts import Parts
from xfed.protocol.message import Message

Weighting = Literal["sizes", "uniform"]


@dataclass(frozen=True)
class Holders:
    """Who holds which entries of the full model, where clients carry only part of it."""

    sizes: Mapping[str, int]
    """Numbers in each part of the full model."""
    places: Callable[[int], Mapping[str, Tensor]]
    """Where a client's numbers stand in the full model's parts."""


class Uploads:
    """Accumulates messages one by one, in the cohort's order.

    Weighted sums are kept in float64: products of a float32 number and a sample count are exact there, so one
    client's average is the client's own numbers, bit for bit. With `holders`, every entry is averaged over those
    who hold it.
    """

    def __init__(
        self,
        averaged: Parts,
        collected: Parts,
        weighting: Weighting,
        more: Sequence[str] = (),
        holders: Holders | None = None,
    ) -> None:
        self._averaged = {part.key for part in averaged}
        self._collected = {part.key for part in collected} | set(more)
        self._weighting = weighting
        self._holders = holders
        self._sums: dict[str, Tensor] = {}
        self._held: dict[str, Tensor] = {}
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
                self._sum(client, name, tensor, weight)
            elif name.partition(".")[0] in self._collected:
                self._rows.setdefault(name, []).append(tensor)
            else:
                raise ValueError(f"upload of client {client} holds {name!r}, which the method never declared")

    def _sum(self, client: int, name: str, tensor: Tensor, weight: int) -> None:
        if self._holders is None:
            if name not in self._sums:
                self._sums[name] = torch.zeros_like(tensor, dtype=torch.float64)
            self._sums[name].add_(tensor, alpha=weight)
            return
        wide = tensor.double()
        if name not in self._sums:
            for table in (self._sums, self._held):
                table[name] = torch.zeros(self._holders.sizes[name], dtype=torch.float64)
        places = self._holders.places(client)[name]
        self._sums[name].index_add_(0, places, wide, alpha=weight)
        self._held[name].index_add_(0, places, torch.ones_like(wide), alpha=weight)

    def averages(self, current: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Give Σ p_i w_i per averaged part, p_i = n_i / Σ n_j over this round's clients that hold an entry.

        Entries that nobody held keep their `current` value, which is asked for only where that can happen.
        """
        if self._holders is None:
            total = sum(self.weights)
            averages = {name: torch.empty_like(sums, dtype=torch.float32) for name, sums in self._sums.items()}
            return {name: torch.div(self._sums[name], total, out=average) for name, average in averages.items()}
        kept = current()
        return {
            name: torch.where(self._held[name] > 0, (sums / self._held[name]).float(), kept[name])
            for name, sums in self._sums.items()
        }

    def held(self, name: str) -> Tensor:
        """Give the total weight of those who hold each entry of an averaged part."""
        return self._held[name] if self._holders else torch.tensor(float(sum(self.weights)), dtype=torch.float64)

    def stack(self, part: Parts | str) -> Tensor:
        """Give a collected part (or other tensor) as clients × numbers: a snapshot in the order of `clients`."""
        return torch.stack(self._rows[part.key if isinstance(part, Parts) else part])
