"""What image networks share: memory order, BatchNorm of a single sample, groups."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from xfed.models.images import BatchNorm, ChannelsLast, normalisation


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_reaches_the_convolution_also_from_one_channel(channels: int) -> None:
    images = torch.randn(2, channels, 8, 8)
    laid = ChannelsLast()(images)
    assert torch.equal(laid, images)
    assert laid.stride() == (64 * channels, 1, 8 * channels, channels)
    maps = nn.Conv2d(channels, 6, 3)(laid)
    assert maps.is_contiguous(memory_format=torch.channels_last)


def test_batch_norm_is_torchs_wherever_torch_works() -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm2d(3)
    maps = torch.randn(1, 3, 2, 2)
    assert torch.equal(ours(maps), theirs(maps))
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(ours.eval()(maps), theirs.eval()(maps))


def test_batch_norm_of_a_single_value_uses_and_keeps_the_running_statistics() -> None:
    layer, maps = BatchNorm(2), torch.tensor([[[[3.0]], [[-1.0]]]])
    layer.running_mean.copy_(torch.tensor([1.0, 1.0]))
    layer.running_var.copy_(torch.tensor([4.0, 1.0]))
    # (3 - 1) / 2 and (-1 - 1) / 1, but for epsilon 1e-5
    assert layer.train()(maps).flatten().tolist() == pytest.approx([1.0, -2.0], abs=1e-4)
    assert layer.running_mean.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("channels", "groups"), [(512, 32), (128, 32), (64, 32), (32, 16), (48, 8), (6, 1), (4, 2), (9, 1), (1, 1)]
)
def test_groups_divide_the_channels_and_hold_two(channels: int, groups: int) -> None:
    assert normalisation("group", channels).num_groups == groups
