"""The paper's ConvNet, against its layers in the paper's order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.models.builders import batch, build, small
from xfed.components import validate
from xfed.errors import InputError
from xfed.models.convnet import ConvNet


def test_the_papers_network() -> None:
    network = build("convnet", (3, 32, 32), 10)
    # Sides without padding: 32 -> 30 -> 15 -> 13 -> 6 -> 4 -> 2.
    state, sides = torch.zeros(1, 3, 32, 32), []
    for index in range(3):
        state = network.stage(index, state)
        sides.append(tuple(state.shape[1:]))
    assert sides == [(128, 15, 15), (128, 6, 6), (128, 2, 2)]
    # (3·9 + 1)·128 + 2·(128·9 + 1)·128 weights and biases
    assert sum(p.numel() for p in network.stages.parameters()) == 3_584 + 2 * 147_584


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_pool_and_relu_commute_bit_for_bit_with_their_gradients(memory_format: torch.memory_format) -> None:
    # Whole numbers from -2 to 2 make ties, zeros and windows without a positive value common.
    generator = torch.Generator().manual_seed(3)
    values = torch.randint(-2, 3, (16, 8, 12, 12), generator=generator).float().contiguous(memory_format=memory_format)
    weights = torch.randn(16, 8, 6, 6, generator=generator)
    results = []
    for layers in ((nn.ReLU(), nn.MaxPool2d(2)), (nn.MaxPool2d(2), nn.ReLU())):
        maps = values.clone().requires_grad_()
        output = nn.Sequential(*layers)(maps)
        results.append((output, torch.autograd.grad((output * weights).sum(), maps)[0]))
    (before, before_gradient), (after, after_gradient) = results
    assert torch.equal(before, after)
    assert torch.equal(before_gradient, after_gradient)
    assert (before_gradient != 0).any()


def _as_written_in_the_paper(network: nn.Module, images: Tensor) -> list[Tensor]:
    """Convolution, ReLU, pool, average and linear layer in plain torch, in row-major order."""
    logits, maps = [], images
    for stage, head in zip(network.stages, network.exits, strict=True):
        layer = next(module for module in stage if isinstance(module, nn.Conv2d))
        maps = torch.conv2d(maps, layer.weight, layer.bias).relu()
        maps = torch.max_pool2d(maps, 2)
        logits.append(torch.nn.functional.linear(maps.mean((2, 3)), head.linear.weight, head.linear.bias))
    return logits


def test_logits_equal_the_papers_order_of_layers() -> None:
    network, images = small("convnet"), batch("convnet")
    for ours, plain in zip(network(images).logits.values(), _as_written_in_the_paper(network, images), strict=True):
        assert torch.allclose(ours, plain, atol=1e-6)


def test_vanishing_maps_are_told_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"padding 0 leaves nothing of 8 × 8 images; use convnet\.padding=1"):
        build("convnet", (1, 8, 8), 10, padding=0)  # 8 -> 6 -> 3 -> 1 -> 0
    with pytest.raises(InputError, match="depth 6, kernel 3 and padding auto leaves nothing of 32 × 32"):
        build("convnet", (3, 32, 32), 10, depth=6)  # even with padding 1: 32 -> 16 -> 8 -> 4 -> 2 -> 1 -> 0
    with pytest.raises(InputError, match=r"use convnet\.padding=2 or a smaller"):
        build("convnet", (3, 32, 32), 10, depth=6, padding=1)
    build("convnet", (3, 32, 32), 10, depth=6, padding=2)


def test_automatic_padding_saves_small_images() -> None:
    network = build("convnet", (1, 8, 8), 10, width=4)  # 8 -> 4 -> 2 -> 1 with padding 1
    assert network(torch.zeros(2, 1, 8, 8)).features[2].shape == (2, 4)


@pytest.mark.parametrize(("norm", "layer"), [("batch", nn.BatchNorm2d), ("group", nn.GroupNorm), ("none", type(None))])
def test_normalisation(norm: str, layer: type) -> None:
    network = small("convnet", norm=norm)
    found = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm)]
    assert [isinstance(m, layer) for m in found] == [True] * (0 if norm == "none" else 3)
    assert all(torch.isfinite(z).all() for z in network(batch("convnet")).logits.values())


def test_bad_settings_are_named() -> None:
    for values in ({"padding": -1}, {"norm": "layer"}, {"width": 0}):
        with pytest.raises(InputError, match=rf"^convnet\.{next(iter(values))}"):
            validate(ConvNet.Settings, values, prefix="convnet.")
