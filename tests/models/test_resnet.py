"""The paper's ResNet-18, against a block by the textbook."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.models.builders import batch, build, small
from xfed.models.layout import Layout
from xfed.models.parts import Parts


def test_parameters_of_the_papers_network() -> None:
    layout = Layout.of(build("resnet18", (3, 32, 32), 100))
    assert layout.count(Parts.BACKBONE) == 11_168_832
    assert layout.count(Parts.LAST_EXIT) == 51_300  # 512·100 + 100
    assert f"{layout.count(Parts.LAST_EXIT) / layout.count(Parts.BACKBONE):.3%}" == "0.459%"
    assert layout.count(Parts.SHALLOW_EXITS) == (64 + 128 + 256) * 100 + 300


def test_stages_halve_the_maps_and_double_the_channels() -> None:
    network = build("resnet18", (3, 32, 32), 10, width=4).eval()
    state, shapes = torch.zeros(1, 3, 32, 32), []
    for index in range(4):
        state = network.stage(index, state)
        shapes.append(tuple(state.shape[1:]))
    assert shapes == [(4, 32, 32), (8, 16, 16), (16, 8, 8), (32, 4, 4)]


def test_statistics_are_a_part_of_their_own() -> None:
    network = build("resnet18", (3, 32, 32), 100)
    # A mean and a variance per channel: stem 64; stage 1: 4·64; later stages: 4 layers and a shortcut each.
    channels = 64 + 4 * 64 + 5 * (128 + 256 + 512)
    assert Layout.of(network).count(Parts.STATISTICS) == 2 * channels == 9_600
    assert Layout.of(small("resnet18", norm="group")).count(Parts.STATISTICS) == 0


def test_training_moves_statistics_and_evaluation_does_not() -> None:
    network = small("resnet18")
    state = Layout.of(network).bind(network, torch.device("cpu"))
    initial = state.statistics.clone()
    network.eval()(batch("resnet18"))
    assert torch.equal(state.statistics, initial)
    network.train()(batch("resnet18"))
    assert not torch.equal(state.statistics, initial)


def test_group_norm_has_as_many_parameters_and_treats_samples_alone() -> None:
    grouped, batched = small("resnet18", norm="group"), small("resnet18")
    assert Layout.of(grouped).count(Parts.MODEL) == Layout.of(batched).count(Parts.MODEL)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in grouped.modules())
    images = batch("resnet18")
    together, alone = grouped.train()(images), grouped.train()(images[:1])
    assert torch.allclose(together.logits[3][:1], alone.logits[3], atol=1e-5)


def test_depth_is_blocks_per_stage() -> None:
    one, two = (build("resnet18", (3, 8, 8), 5, width=4, depth=depth) for depth in (1, 2))
    # A further block of w channels: two convolutions of 9·w² and two norms of 2·w.
    further = sum(18 * w * w + 4 * w for w in (4, 8, 16, 32))
    assert Layout.of(two).count(Parts.BACKBONE) - Layout.of(one).count(Parts.BACKBONE) == further


def test_convolutions_start_at_hes_variance() -> None:
    weight = build("resnet18", (3, 32, 32), 10).stages[3][1].second[0].weight
    assert weight.shape == (512, 512, 3, 3)  # variance 2 / (9·512); the estimate from 2.4 million numbers is within 1 %
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 512)), rel=0.01)


def test_a_single_sample_trains_where_maps_shrink_to_a_point() -> None:
    network = build("resnet18", (1, 8, 8), 10, width=4).train()  # 8 -> 8 -> 4 -> 2 -> 1
    logits = network(torch.randn(1, 1, 8, 8)).logits[3]
    assert torch.isfinite(torch.autograd.grad(logits.sum(), network.stages[0][1].weight)[0]).all()


def test_block_by_the_textbook() -> None:
    network = small("resnet18").eval()
    block, maps = network.stages[1][0], torch.randn(2, 4, 9, 9)

    def branch(layers: nn.Sequential, inputs: torch.Tensor, **options: int) -> torch.Tensor:
        return layers[1](nn.functional.conv2d(inputs, layers[0].weight, **options))

    inner = branch(block.first, maps, stride=2, padding=1).relu()
    expected = (branch(block.second, inner, padding=1) + branch(block.shortcut, maps, stride=2)).relu()
    assert torch.allclose(block(maps), expected, atol=1e-6)
