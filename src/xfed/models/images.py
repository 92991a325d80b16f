"""What the image networks share: the check of their inputs, memory order and normalisation."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xfed.errors import InputError

Normalisation = Literal["batch", "group"]


def require_images(model: str, input_shape: tuple[int, ...]) -> None:
    """Refuse inputs that are not images C × H × W."""
    if len(input_shape) != 3:
        raise InputError(f"model {model!r} takes images (channels, height, width), not inputs of shape {input_shape}")


class ChannelsLast(nn.Module):
    """Store a pixel's channels side by side; the layers behind keep that order.

    The numbers stay, CPU kernels for convolution and pooling get faster. A copy, because torch takes an image
    with one channel for stored in either order and would go on in the slow one.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Copy the images into this order."""
        return images.clone(memory_format=torch.channels_last)


class BatchNorm(nn.BatchNorm2d):
    """BatchNorm that also trains on a single value per channel, where torch refuses.

    One sample with 1 × 1 maps has no variance: it is normalised by the running statistics, which it leaves
    alone. It happens when the last batch of a client's epoch holds one sample.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise by the batch or by the running statistics."""
        if self.training and maps.numel() == maps.shape[1]:
            return F.batch_norm(maps, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(maps)


def normalisation(kind: Normalisation, channels: int) -> nn.Module:
    """Build BatchNorm, or GroupNorm with at most 32 groups of at least two channels (Wu and He, 2018)."""
    if kind == "batch":
        return BatchNorm(channels)
    groups = next((groups for groups in (32, 16, 8, 4, 2) if channels % (2 * groups) == 0), 1)
    return nn.GroupNorm(groups, channels)
