"""Convolution, 2 × 2 max-pool and ReLU on images, in one compiled kernel with its own backward pass."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from xfed.kernels.library import Shape, library
from xfed.models.counting import being_counted
from xfed.models.images import ChannelsLast

CHANNELS, KERNELS = range(1, 5), (3, 5)


class FirstStage(torch.autograd.Function):
    """Images N × C × H × W to pooled maps, which are stored channels-last; images get no gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        """Convolve, pool and cut at zero; for the backward pass keep the images and which pixels won."""
        count, channels, height, width = images.shape
        outputs, kernel = weight.shape[0], weight.shape[2]
        rows, columns = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
        shape = Shape(count, channels, height, width, outputs, kernel, padding)
        pooled = torch.empty(count, rows, columns, outputs)
        winners = None
        if any(ctx.needs_input_grad):
            winners = torch.empty(pooled.shape, dtype=torch.uint8)
            ctx.save_for_backward(images, winners)
            ctx.shape, ctx.weight_shape, ctx.has_bias = shape, weight.shape, bias is not None
        tensors = (images, weight.contiguous(), bias, pooled, winners)
        library().call("xfed_first_stage_forward", *map(_address, tensors), ctypes.byref(shape))
        return pooled.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Give the gradients of weight and bias."""
        images, winners = ctx.saved_tensors
        gradient = gradients[0].permute(0, 2, 3, 1).contiguous()
        weight = torch.empty(ctx.weight_shape)
        bias = torch.empty(ctx.weight_shape[0]) if ctx.has_bias else None
        tensors = (images, gradient, winners, weight, bias)
        library().call("xfed_first_stage_backward", *map(_address, tensors), ctypes.byref(ctx.shape))
        return None, weight, bias, None


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class FusedStage(nn.Sequential):
    """A stage whose layers stay what they are and run as one kernel.

    Layer by layer it runs while its operations are counted, and after its convolution was replaced by another kind.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Run the stage."""
        convolution = next(layer for layer in self if isinstance(layer, nn.Conv2d))
        if being_counted() or type(convolution) is not nn.Conv2d or images.requires_grad:
            for layer in self:
                images = layer(images)
            return images
        padding = convolution.padding[0]
        fused: Tensor = FirstStage.apply(  # type: ignore[no-untyped-call]
            images.contiguous(), convolution.weight, convolution.bias, padding
        )
        return fused


def fits(stage: nn.Module) -> bool:
    """Tell whether the kernel does what this stage's layers do, one by one."""
    if type(stage) is not nn.Sequential:
        return False
    layers = [layer for layer in stage if not isinstance(layer, ChannelsLast)]
    kinds = [type(layer) for layer in layers]
    if kinds not in ([nn.Conv2d, nn.MaxPool2d, nn.ReLU], [nn.Conv2d, nn.ReLU, nn.MaxPool2d]):
        return False
    convolution = next(layer for layer in layers if isinstance(layer, nn.Conv2d))
    pool = next(layer for layer in layers if isinstance(layer, nn.MaxPool2d))
    sides = {*convolution.kernel_size}, {*convolution.padding}
    return (
        convolution.in_channels in CHANNELS
        and convolution.weight.dtype is torch.float32
        and convolution.padding_mode == "zeros"
        and not isinstance(convolution.padding, str)
        and convolution.stride == convolution.dilation == (1, 1)
        and convolution.groups == 1
        and all(len(side) == 1 for side in sides)
        and convolution.kernel_size[0] in KERNELS
        and {_pair(pool.kernel_size), _pair(pool.stride)} == {(2, 2)}
        and {_pair(pool.padding), _pair(pool.dilation)} == {(0, 0), (1, 1)}
        and not (pool.ceil_mode or pool.return_indices)
    )


def _pair(value: Any) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)


def fuse(stage: nn.Module) -> None:
    """Let a stage that fits run as one kernel, in place: its layers, names and numbers stay."""
    stage.__class__ = FusedStage
