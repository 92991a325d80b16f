"""Random crops and flips of a client's training images, the same on every engine and after a resumption.

What happens to a sample in an epoch is drawn for the whole view at once, before any batch: it depends on the stream
(client, round, phase), the epoch and the sample, never on the batch that the sample is in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Change = Literal["crop", "flip"]
MARGIN = 8
"""A crop is moved by up to an eighth of the image each way: 4 pixels of 32."""


@dataclass(frozen=True)
class Augmentation:
    """Which changes are made: `crop` pads with zeros and cuts elsewhere, `flip` mirrors every second image."""

    changes: Collection[Change]

    def draw(self, samples: int, shape: tuple[int, ...], generator: torch.Generator) -> Drawn:
        """Draw one epoch's changes for all samples of a view, on the CPU."""
        margins = tuple(max(1, size // MARGIN) for size in shape[-2:])
        moves = None
        if "crop" in self.changes:
            moves = torch.stack([torch.randint(0, 2 * m + 1, (samples,), generator=generator) for m in margins], dim=1)
        flips = torch.rand(samples, generator=generator) < 0.5 if "flip" in self.changes else None
        return Drawn(margins, moves, flips)


@dataclass(frozen=True)
class Drawn:
    """Changes by position in the view."""

    margins: tuple[int, ...]
    moves: Tensor | None
    flips: Tensor | None

    def apply(self, images: Tensor, positions: Tensor) -> Tensor:
        """Change images as they are stored (n × C × H × W), which stand at these positions of the view."""
        chosen = positions.cpu()
        if self.moves is not None:
            images = self._cropped(images, self.moves[chosen].to(images.device))
        if self.flips is not None:
            flipped = self.flips[chosen].to(images.device)
            images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
        return images

    def _cropped(self, images: Tensor, moves: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        down, right = self.margins
        padded = F.pad(images, (right, right, down, down))
        device = images.device
        rows = torch.arange(height, device=device) + moves[:, :1]
        columns = torch.arange(width, device=device) + moves[:, 1:]
        sample = torch.arange(count, device=device)[:, None, None, None]
        channel = torch.arange(channels, device=device)[None, :, None, None]
        return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]
