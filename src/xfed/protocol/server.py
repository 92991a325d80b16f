"""What the server holds: the global model, and what it keeps for each client it has met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.models.layout import Layout, ModelState
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.randomness import Purpose, numpy_stream


class PerClient(Protocol):
    """Named tensors per client; clients never touched cost nothing."""

    def get(self, client: int) -> dict[str, Tensor]:
        """Give what is kept for a client; nothing for one never touched."""

    def put(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Replace what is kept for a client."""

    def known(self) -> list[int]:
        """Give the clients for which something is kept, in order."""


@dataclass
class Server:
    """All state of the server side. A method's object holds none, so saving this saves everything.

    `model` holds the aggregated parts (the rest stays as initialised); `tensors` whatever else a method keeps.
    """

    subnetworks: Subnetworks
    initial: ModelState
    model: ModelState
    tensors: dict[str, Tensor]
    kept: PerClient
    seed: int
    population: int
    round: int = 0
    """Last completed round."""
    notes: dict[str, Tensor] = field(default_factory=dict)
    """Small arrays that the method noted in the current round, for figures; no number depends on them."""

    @property
    def layout(self) -> Layout:
        """Addresses of the full network's tensors."""
        return self.subnetworks.layout

    def pack(self, parts: Parts) -> dict[str, Tensor]:
        """Copy named parts of the global model."""
        return self.layout.pack(self.model, parts)

    def kept_or_initial(self, client: int, part: Parts, name: str | None = None) -> Tensor:
        """Give what is kept for a client under `name` (default: the part's), else the initial part."""
        kept = self.kept.get(client)
        key = name or part.key
        return kept[key] if key in kept else self.layout.gather(self.initial, part)

    def keep(self, client: int, **tensors: Tensor) -> None:
        """Keep tensors for a client, beside what is kept already."""
        self.kept.put(client, {**self.kept.get(client), **tensors})

    def note(self, name: str, values: NDArray[Any] | list[Any]) -> None:
        """Leave a small named array with the round: it goes to the run directory, and from there into figures."""
        self.notes[name] = torch.from_numpy(np.array(values))

    def ties(self, round: int) -> np.random.Generator:
        """Open the stream that breaks ties in a round."""
        return numpy_stream(self.seed, Purpose.TIES, round=round)
