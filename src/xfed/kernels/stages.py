"""Convolution, 2 × 2 max-pool and ReLU as one compiled kernel, with a backward pass that follows the winners alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from xfed.kernels.library import Shape, library
from xfed.models.counting import being_counted
from xfed.models.images import ChannelsLast

IMAGE_CHANNELS, KERNELS = range(1, 5), (3, 5)


class OnImages(torch.autograd.Function):
    """Images N × C × H × W with few channels to pooled maps, stored channels-last; images get no gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        """Convolve, pool and cut at zero; for the backward pass keep which pixels won."""
        images = images.contiguous()
        shape = _shape(images.shape, weight, padding)
        return _forward(ctx, "xfed_images_forward", images, weight, bias, shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Give the gradients of weight and bias."""
        images, weight, winners = ctx.saved_tensors
        slopes = gradients[0].permute(0, 2, 3, 1).contiguous()
        own, bias = torch.empty(weight.shape), torch.empty(len(weight))
        library().call("xfed_images_backward", *map(_address, (images, slopes, winners, own, bias)), ctx.shape)
        return None, own, bias if ctx.has_bias else None, None


class OnMaps(torch.autograd.Function):
    """Maps of an earlier stage, stored channels-last, to pooled maps."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        """Convolve, pool and cut at zero; for the backward pass keep which pixels won."""
        shape = _shape(maps.shape, weight, padding)
        return _forward(ctx, "xfed_maps_forward", maps.permute(0, 2, 3, 1).contiguous(), weight, bias, shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Give the gradients of maps, weight and bias, those that are wanted."""
        maps, weight, winners = ctx.saved_tensors
        slopes = gradients[0].permute(0, 2, 3, 1).contiguous()
        below = torch.empty(maps.shape) if ctx.needs_input_grad[0] else None
        own = torch.empty(weight.shape) if any(ctx.needs_input_grad[1:]) else None
        bias = torch.empty(len(weight))
        tensors = (maps, weight, slopes, winners, below, own, bias)
        library().call("xfed_maps_backward", *map(_address, tensors), ctx.shape)
        passed = None if below is None else below.permute(0, 3, 1, 2)
        return passed, own, None if own is None or not ctx.has_bias else bias, None


def _shape(inputs: torch.Size, weight: Tensor, padding: int) -> Shape:
    count, channels, height, width = inputs
    return Shape(count, channels, height, width, weight.shape[0], weight.shape[2], padding)


def _forward(ctx: Any, kernel: str, inputs: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    rows, columns = ((side + 2 * shape.padding - shape.kernel + 1) // 2 for side in (shape.height, shape.width))
    pooled = torch.empty(shape.images, rows, columns, shape.outputs)
    weight = weight.contiguous()
    winners = None
    if any(ctx.needs_input_grad):
        winners = torch.empty(pooled.shape, dtype=torch.uint8)
        ctx.save_for_backward(inputs, weight, winners)
        ctx.shape, ctx.has_bias = shape, bias is not None
    library().call(kernel, *map(_address, (inputs, weight, bias, pooled, winners)), shape)
    return pooled.permute(0, 3, 1, 2)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class FusedStage(nn.Sequential):
    """A stage whose layers stay what they are and run as one kernel.

    Layer by layer it runs while its operations are counted, and after its convolution was replaced by another kind.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the stage."""
        convolution = next(layer for layer in self if isinstance(layer, nn.Conv2d))
        images = convolution.in_channels in IMAGE_CHANNELS
        if being_counted() or type(convolution) is not nn.Conv2d or (images and inputs.requires_grad):
            for layer in self:
                inputs = layer(inputs)
            return inputs
        kernel = OnImages if images else OnMaps
        pooled: Tensor = kernel.apply(inputs, convolution.weight, convolution.bias, convolution.padding[0])  # type: ignore[no-untyped-call]
        return pooled


def fits(stage: nn.Module) -> bool:
    """Tell whether the kernels do what this stage's layers do, one by one."""
    if type(stage) is not nn.Sequential:
        return False
    layers = [layer for layer in stage if not isinstance(layer, ChannelsLast)]
    kinds = [type(layer) for layer in layers]
    if kinds not in ([nn.Conv2d, nn.MaxPool2d, nn.ReLU], [nn.Conv2d, nn.ReLU, nn.MaxPool2d]):
        return False
    convolution = next(layer for layer in layers if isinstance(layer, nn.Conv2d))
    pool = next(layer for layer in layers if isinstance(layer, nn.MaxPool2d))
    return (
        (convolution.in_channels in IMAGE_CHANNELS or convolution.in_channels % library().lanes == 0)
        and convolution.weight.dtype is torch.float32
        and convolution.padding_mode == "zeros"
        and not isinstance(convolution.padding, str)
        and convolution.stride == convolution.dilation == (1, 1)
        and convolution.groups == 1
        and convolution.kernel_size in [(side, side) for side in KERNELS]
        and convolution.padding[0] == convolution.padding[1]
        and _pair(pool.kernel_size) == _pair(pool.stride) == (2, 2)
        and _pair(pool.padding) == (0, 0)
        and _pair(pool.dilation) == (1, 1)
        and not (pool.ceil_mode or pool.return_indices)
    )


def _pair(value: Any) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)


def fuse(stage: nn.Module) -> None:
    """Let a stage that fits run as one kernel, in place: its layers, names and numbers stay."""
    stage.__class__ = FusedStage
