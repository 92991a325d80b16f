"""The paper's ConvNet: three convolutions, an exit after each."""

from __future__ import annotations

from itertools import count, pairwise
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt
from torch import nn

from xfed.components import BaseSettings
from xfed.errors import InputError
from xfed.models.images import ChannelsLast, normalisation, require_images
from xfed.models.network import EarlyExitNetwork, Exit, ExitPlacement, ModelSource, model


@model("convnet")
class ConvNet(ModelSource):
    """Convolution, ReLU, 2 × 2 max-pool per stage, an exit after each (the paper's CIFAR-10 network).

    The pool comes before the ReLU: the two commute, in values and gradients, and the ReLU then sees a quarter
    of the numbers.
    """

    class Settings(BaseSettings):
        width: PositiveInt = Field(128, description="channels of every stage")
        depth: PositiveInt = Field(3, description="number of stages")
        kernel: PositiveInt = Field(3, description="side of the convolution kernel")
        padding: NonNegativeInt | Literal["auto"] = Field(
            "auto",
            description="pixels added at the border; auto: 0 (the paper's) where the maps survive it, else 1",
        )
        norm: Literal["none", "batch", "group"] = Field(
            "none", description="normalisation after each convolution; the paper's ConvNet has none"
        )

    settings: Settings

    def build(self, input_shape: tuple[int, ...], classes: int, exits: ExitPlacement) -> EarlyExitNetwork:
        """Build the stages for images C × H × W."""
        require_images(self.name, input_shape)
        s = self.settings
        paddings = [0, 1] if s.padding == "auto" else [s.padding]
        padding = next((p for p in paddings if self._side(min(input_shape[1:]), p) >= 1), None)
        if padding is None:
            enough = next(p for p in count() if self._side(min(input_shape[1:]), p) >= 1)
            raise InputError(
                f"model 'convnet' with depth {s.depth}, kernel {s.kernel} and padding {s.padding} leaves nothing of "
                f"{input_shape[1]} × {input_shape[2]} images; use convnet.padding={enough} or a smaller convnet.depth"
            )
        channels = [input_shape[0]] + [s.width] * s.depth
        stages = [self._stage(a, b, padding) for a, b in pairwise(channels)]
        stages[0].insert(0, ChannelsLast())
        heads = [Exit(s.width, classes) for _ in stages]
        return EarlyExitNetwork.of(stages, heads, exits)

    def _side(self, side: int, padding: int) -> int:
        for _ in range(self.settings.depth):
            side = (side + 2 * padding - self.settings.kernel + 1) // 2
        return side

    def _stage(self, channels: int, width: int, padding: int) -> nn.Sequential:
        layers: list[nn.Module] = [nn.Conv2d(channels, width, self.settings.kernel, padding=padding)]
        if self.settings.norm != "none":
            layers.append(normalisation(self.settings.norm, width))
        return nn.Sequential(*layers, nn.MaxPool2d(2), nn.ReLU())
