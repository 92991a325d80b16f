"""The paper's ResNet-18 for small images: four stages of basic blocks, an exit after each."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from xfed.components import BaseSettings
from xfed.models.images import ChannelsLast, Normalisation, normalisation, require_images
from xfed.models.network import EarlyExitNetwork, Exit, ExitPlacement, ModelSource, model

STAGES = 4


@model("resnet18")
class ResNet18(ModelSource):
    """Four stages of residual blocks, each twice as wide as the one before, an exit after each (CIFAR-100, Tiny).

    The variant for small images: a 3 × 3 stem with stride 1, no max-pool; the stem belongs to
    the first stage. Convolutions start from a normal distribution with variance 2 / (kernel area × channels out)
    (He et al., 2015), normalisation at the identity, exits as torch's linear layers do.
    """

    class Settings(BaseSettings):
        width: PositiveInt = Field(64, description="channels of the first stage; each later one has twice as many")
        depth: PositiveInt = Field(2, description="residual blocks per stage")
        norm: Normalisation = Field(
            "batch", description="normalisation after each convolution; group needs no running statistics"
        )

    settings: Settings

    def build(self, input_shape: tuple[int, ...], classes: int, exits: ExitPlacement) -> EarlyExitNetwork:
        """Build the stages for images C × H × W, of any size."""
        require_images(self.name, input_shape)
        s = self.settings
        widths = [s.width * 2**index for index in range(STAGES)]
        stem = [ChannelsLast(), _convolution(input_shape[0], s.width, 3), normalisation(s.norm, s.width), nn.ReLU()]
        stages, channels = [], s.width
        for index, width in enumerate(widths):
            layers: list[nn.Module] = stem if index == 0 else []
            for block in range(s.depth):
                layers.append(BasicBlock(channels, width, 2 if index and not block else 1, s.norm))
                channels = width
            stages.append(nn.Sequential(*layers))
        return EarlyExitNetwork.of(stages, [Exit(width, classes) for width in widths], exits)


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions and a shortcut around them; a 1 × 1 convolution where the shape changes.

    The shortcut leaves pixels out before its convolution instead of giving that a stride. The result is the same,
    but the CPU kernel for the gradient of a strided 1 × 1 convolution in channels-last order writes out of bounds
    when there are fewer channels than fit into a register (oneDNN issue 6035).
    """

    def __init__(self, channels: int, width: int, stride: int, norm: Normalisation) -> None:
        super().__init__()
        self.stride = stride
        self.first = nn.Sequential(_convolution(channels, width, 3, stride), normalisation(norm, width))
        self.second = nn.Sequential(_convolution(width, width, 3), normalisation(norm, width))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(_convolution(channels, width, 1), normalisation(norm, width))

    def forward(self, maps: Tensor) -> Tensor:
        """Add the two paths."""
        inner = F.relu(self.first(maps), inplace=True)
        around = self.shortcut(maps[:, :, :: self.stride, :: self.stride])
        return F.relu(self.second(inner) + around, inplace=True)


def _convolution(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
