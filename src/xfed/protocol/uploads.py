"""A round's uploads as they stream in: averaged parts are summed and dropped, the rest is kept by client."""

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


class RejectedError(ClientError):
    """An upload that cannot be taken; says why, going on where the client's name stops."""


class DivergedError(RejectedError):
    """Numbers of a client that are no longer finite; says which, going on where the client's name stops."""


@dataclass(frozen=True)
class Holders:
    """Who holds which entries of the full model, where clients carry only part of it."""

    indices: Callable[[int], Mapping[str, Tensor]]
    """Which entries of the full model's parts a client's numbers are."""


class Uploads:
    """Accumulates messages one by one, in the cohort's order, beside what was sent to whom.

    Weighted sums are kept in float64: products of a float32 number and a sample count are exact there, so one
    client's average is the client's own numbers, bit for bit. With `holders`, every entry is averaged over those
    who hold it. `sizes` are the numbers in each averaged or collected part of the full model.
    """

    def __init__(
        self,
        averaged: Parts,
        collected: Parts,
        weighting: Weighting,
        sizes: Mapping[str, int],
        more: Sequence[str] = (),
        holders: Holders | None = None,
        sent: Mapping[int, Message] | None = None,
    ) -> None:
        self._averaged = {part.key for part in averaged}
        self._collected = {part.key for part in collected} | set(more)
        self._weighting = weighting
        self._sizes = sizes
        self._holders = holders
        self._sent = sent or {}
        self._sums: dict[str, Tensor] = {}
        self._held: dict[str, Tensor] = {}
        self._kept: dict[int, Message] = {}
        self.weights: list[int] = []

    @property
    def clients(self) -> list[int]:
        """Whose uploads there are, in the order in which they were added up."""
        return list(self._kept)

    def sent(self, client: int) -> Message:
        """Give what a client was sent for this round."""
        return self._sent[client]

    def of(self, client: int) -> Message:
        """Give what is kept of a client's upload: its values, and the tensors that are not averaged."""
        return self._kept[client]

    def add(self, client: int, message: Message) -> None:
        """Take one upload in; one that is not as declared is rejected whole."""
        samples = self._check(client, message)
        weight = samples if self._weighting == "sizes" else 1
        self.weights.append(weight)
        kept = {name: tensor for name, tensor in message.tensors.items() if name not in self._averaged}
        self._kept[client] = Message(kept, message.values)
        for name, tensor in message.tensors.items():
            if name in self._averaged:
                self._sum(client, name, tensor, weight)

    def _check(self, client: int, message: Message) -> int:
        """Refuse what was never declared, has other sizes than the model, or is not finite; give the sample count."""
        samples = message.values.get("samples", 1)
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise RejectedError(f"was rejected: it reports {samples!r} samples")
        held = self._holders.indices(client) if self._holders else None
        for name in self._averaged:
            expected = self._sizes.get(name, 0) if held is None else len(held.get(name, ()))
            if expected and name not in message.tensors:
                raise RejectedError(f"was rejected: its upload lacks {name!r}")
        for name, tensor in message.tensors.items():
            if name not in self._averaged and name.partition(".")[0] not in self._collected:
                raise RejectedError(f"was rejected: its upload holds {name!r}, which the method never declared")
            expected = tensor.numel() if name not in self._sizes else self._sizes[name]
            if held is not None and name in self._averaged:
                expected = len(held.get(name, ()))
            if tensor.numel() != expected or (name in self._sizes and tensor.ndim != 1):
                raise RejectedError(
                    f"was rejected: its {name} has shape {tuple(tensor.shape)}; allowed: {expected:,} numbers in a row"
                )
            if tensor.dtype != torch.float32:
                raise RejectedError(f"was rejected: its {name} is of {tensor.dtype}; allowed: torch.float32")
            if not torch.isfinite(tensor).all():
                raise DivergedError(f"diverged: its {name} is not finite")
        return samples

    def _sum(self, client: int, name: str, tensor: Tensor, weight: int) -> None:
        if self._holders is None:
            if name not in self._sums:
                self._sums[name] = torch.zeros_like(tensor, dtype=torch.float64)
            self._sums[name].add_(tensor, alpha=weight)
            return
        wide = tensor.double()
        if name not in self._sums:
            for table in (self._sums, self._held):
                table[name] = torch.zeros(self._sizes[name], dtype=torch.float64)
        indices = self._holders.indices(client)[name]
        self._sums[name].index_add_(0, indices, wide, alpha=weight)
        self._held[name].index_add_(0, indices, torch.ones_like(wide), alpha=weight)

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
        """Give the total weight of those who hold each entry of an averaged part; 0 where nobody held it."""
        if self._holders is None:
            return torch.tensor(float(sum(self.weights)), dtype=torch.float64)
        return self._held[name] if name in self._held else torch.zeros(self._sizes[name], dtype=torch.float64)

    def stack(self, part: Parts | str) -> Tensor:
        """Give a collected part (or other tensor) as clients × numbers: a snapshot in the order of `clients`."""
        name = part.key if isinstance(part, Parts) else part
        rows = []
        for client, message in self._kept.items():
            if name not in message.tensors:
                raise ClientError(f"the upload of client {client} lacks {name!r}, which the method collects")
            rows.append(message.tensors[name])
        return torch.stack(rows)
