"""Operations counted while a network runs, against formulas."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from xfed.models.counting import counting


def test_products_count_whoever_calls_them() -> None:
    left, right, vector = torch.ones(2, 3, 4), torch.ones(2, 5, 4), torch.ones(4)
    with counting() as counter:
        torch.einsum("bij,bkj->bik", left, right)
        assert counter.products == [2 * 3 * 5 * 4]
        counter.reset()
        left @ right.transpose(1, 2)
        left @ torch.ones(4, 6)
        left[0] @ vector
        assert counter.products == [2 * 3 * 4 * 5, 2 * 3 * 4 * 6, 3 * 4]


CASES = {
    # outputs 2·3·3 per filter, each over 4 / 2 input channels of 3 × 3
    "grouped convolution": (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 5, 5), 6 * 3 * 3 * 2 * 9),
    # each of 4·5·5 inputs meets 6 filters of 3 × 3
    "transposed convolution": (nn.ConvTranspose2d(4, 6, 3), (1, 4, 5, 5), 4 * 5 * 5 * 6 * 9),
    "convolution over a sequence": (nn.Conv1d(4, 6, 3), (1, 4, 7), 6 * 5 * 4 * 3),
    "linear layer over positions": (nn.Linear(4, 6), (1, 7, 4), 7 * 4 * 6),
    # 5 steps; four gates over 4 inputs and 6 hidden values
    "LSTM": (nn.LSTM(4, 6, batch_first=True), (1, 5, 4), 5 * 4 * 6 * (4 + 6)),
    "GRU": (nn.GRU(4, 6, batch_first=True), (1, 5, 4), 5 * 3 * 6 * (4 + 6)),
    # length 200: 4·200·192² projections, 2·200²·192 for attention, 2·200·192·768 feed-forward
    "torch's own encoder layer": (
        nn.TransformerEncoderLayer(192, 2, 768, batch_first=True),
        (1, 200, 192),
        103_833_600,
    ),
    "normalisation and activation": (nn.Sequential(nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2)), (1, 4, 4, 4), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_count_by_their_formula(name: str) -> None:
    layer, shape, expected = CASES[name]
    with counting() as counter:
        layer.eval()(torch.zeros(shape))
    assert counter.macs == expected


def test_thop_adds_batch_norm_and_pooling() -> None:
    layers = nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5)).eval()
    with counting() as counter:
        layers(torch.zeros(1, 3, 4, 6))
    assert counter.macs == 3 * 5
    assert counter.thop == 4 * (3 * 24) + 3 * (24 + 1) + 3 * 5


def test_thop_does_not_apply_to_attention() -> None:
    with counting() as counter:
        nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 2, 5, 4).unbind())
    assert counter.macs == 2 * (2 * 5 * 5 * 4)
    assert counter.thop is None


def test_settings_of_torch_are_left_as_they_were() -> None:
    with counting():
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.is_grad_enabled()


@pytest.mark.slow
def test_counting_does_not_load_torchs_compiler() -> None:
    program = (
        "import sys, torch; from xfed.models.counting import counting\n"
        "with counting() as counter: torch.nn.Linear(3, 4)(torch.ones(1, 3))\n"
        "assert counter.macs == 12 and 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
