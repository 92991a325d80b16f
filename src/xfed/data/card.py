"""What must be known of a data set once training is over: everything but the samples.

A run keeps its card, so that networks can be built, exported and served where the raw data never was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from xfed.errors import InputError

Kind = Literal["image", "text"]


PerChannel = float | tuple[float, ...]
"""One number for all channels of an image, or one for each."""


def normalised(raw: Tensor, kind: Kind, scale: float, mean: PerChannel, std: PerChannel) -> Tensor:
    """Turn stored values into what a network takes: images into (x / scale − mean) / std, text into int64 ids."""
    if kind == "text":
        return raw.to(torch.int64)
    images = raw.to(torch.float32, copy=True)
    if not isinstance(mean, tuple) and not isinstance(std, tuple):
        return images.mul_(1 / (scale * std)).sub_(mean / std)
    means, stds = (torch.tensor(each, dtype=torch.float64).reshape(-1, 1, 1) for each in (mean, std))
    factor, offset = (each.to(images) for each in (1 / (scale * stds), means / stds))
    return images.mul_(factor).sub_(offset)


@dataclass(frozen=True)
class DataCard:
    """Name, content checksum, kind and shape of inputs, how they are normalised, classes, and how many samples.

    Images are stored as numbers up to `scale` and turned into (x / scale − mean) / std; text is rows of token ids
    below `tokens`, 0 pads. `sizes` counts the samples of all clients together, by what they are for.
    """

    name: str
    sha256: str
    kind: Kind
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    scale: float
    mean: PerChannel
    std: PerChannel
    tokens: int | None = None
    vocabulary: tuple[str, ...] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def normalise(self, raw: Tensor) -> Tensor:
        """Turn stored values into what a network takes."""
        return normalised(raw, self.kind, self.scale, self.mean, self.std)

    def example(self) -> Tensor:
        """Give one input as a network takes it; for text the most demanding one: full length, the largest token id."""
        if self.kind == "text":
            return torch.full((1, *self.input_shape), (self.tokens or 1) - 1, dtype=torch.int64)
        return self.normalise(torch.zeros(1, *self.input_shape))

    def drawn(self, samples: int) -> Tensor:
        """Draw inputs at random, as stored, the same every time: to compare networks where no sample is at hand."""
        generator = torch.Generator().manual_seed(0)
        lowest, above = (1, self.tokens or 2) if self.kind == "text" else (0, int(self.scale) + 1)
        return torch.randint(lowest, above, (samples, *self.input_shape), generator=generator)

    def to_json(self) -> dict[str, Any]:
        """Give the card as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> DataCard:
        """Check and take plain values."""
        try:
            card: DataCard = TypeAdapter(cls).validate_python(values)
            return card
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"the data card is damaged ({where}: {first['msg']})") from None
