"""Weight gradients as matrix products against torch in double precision."""

from __future__ import annotations

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.models.builders import batch, small
from xfed.kernels.choice import Kernels
from xfed.kernels.products import ProductConv2d, fits, replace


@settings(max_examples=40, deadline=None)
@given(
    images=st.integers(1, 3),
    channels=st.integers(1, 9),
    outputs=st.integers(1, 9),
    sides=st.tuples(st.integers(5, 11), st.integers(5, 11)),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    memory_format=st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_gradients_equal_double_precision(
    images: int,
    channels: int,
    outputs: int,
    sides: tuple[int, int],
    kernel: int,
    stride: int,
    padding: int,
    memory_format: torch.memory_format,
) -> None:
    torch.manual_seed(3)
    layer = nn.Conv2d(channels, outputs, kernel, stride, padding, bias=False)
    reference = copy.deepcopy(layer).double()
    assert fits(layer)
    replace(layer)
    maps = torch.randn(images, channels, *sides).contiguous(memory_format=memory_format).requires_grad_()
    exact = maps.detach().double().requires_grad_()
    ours, theirs = layer(maps), reference(exact)
    slopes = torch.randn(ours.shape)
    found = torch.autograd.grad((ours * slopes).sum(), [maps, layer.weight])
    wanted = torch.autograd.grad((theirs * slopes.double()).sum(), [exact, reference.weight])
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).abs().max() <= 1e-5 * other.abs().max()


def test_only_what_is_asked_for_is_computed() -> None:
    layer = nn.Conv2d(4, 4, 3, bias=False)
    replace(layer)
    maps = torch.randn(1, 4, 6, 6, requires_grad=True)
    layer.weight.requires_grad_(False)
    assert torch.autograd.grad(layer(maps).sum(), maps)[0].shape == maps.shape


def test_other_layers_do_not_fit() -> None:
    others = [
        nn.Conv2d(4, 4, 3),
        nn.Conv2d(4, 4, 3, bias=False, groups=2),
        nn.Conv2d(4, 4, 3, bias=False, dilation=2),
        nn.Conv2d(4, 4, 3, bias=False, padding="same"),
        nn.Conv2d(4, 4, 3, bias=False, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, (3, 1), bias=False),
        nn.Conv2d(4, 4, 3, bias=False).double(),
        nn.Linear(4, 4, bias=False),
    ]
    assert not any(map(fits, others))


def test_a_network_keeps_its_outputs() -> None:
    plain, quick = small("resnet18").eval(), small("resnet18").eval()
    Kernels(products=("stages.3.0.second.0",)).apply(quick)
    assert type(quick.get_submodule("stages.3.0.second.0")) is ProductConv2d
    assert all(
        torch.equal(a, b)
        for a, b in zip(plain(batch("resnet18")).logits.values(), quick(batch("resnet18")).logits.values(), strict=True)
    )
