"""A backbone cut into stages computes what it did before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from xfed.errors import InputError
from xfed.models.costs import count_costs
from xfed.models.network import Exit
from xfed.models.wrap import ChannelsLastExit, VectorExit, split


def _convolutions() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 7)
    )


def test_maps_and_vectors() -> None:
    network = split(_convolutions(), cuts=[3, 5], classes=5, example_shape=(3, 8, 8))
    assert [len(stage) for stage in network.stages] == [3, 2, 2]
    assert [type(head) for head in network.exits] == [Exit, Exit, VectorExit]
    assert [head.linear.in_features for head in network.exits] == [4, 6, 7]
    features, logits = network(torch.randn(2, 3, 8, 8))
    assert [tuple(f.shape) for f in features.values()] == [(2, 4), (2, 6), (2, 7)]
    assert {tuple(z.shape) for z in logits.values()} == {(2, 5)}


def test_the_network_computes_what_the_backbone_does() -> None:
    backbone, images = _convolutions().eval(), torch.randn(2, 3, 8, 8)
    expected = backbone(images)
    network = split(backbone, [3], 5, (3, 8, 8)).eval()
    assert torch.equal(network(images).features[1], expected)


def test_last_exit_alone() -> None:
    network = split(_convolutions(), [3, 5], 5, (3, 8, 8), exits="last")
    assert network.places == (2,)
    assert len(network.exits) == 1


def test_sequences() -> None:
    layers = [nn.Embedding(20, 6), nn.LayerNorm(6), nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)]
    network = split(layers, [2], 3, (7,), dtype=torch.long)
    assert [type(head) for head in network.exits] == [ChannelsLastExit, ChannelsLastExit]
    vectors = torch.randn(2, 7, 6)
    assert torch.allclose(network.exits[0].pool(vectors), vectors.mean(1))
    assert network(torch.randint(0, 20, (2, 7))).logits[1].shape == (2, 3)
    # Attention on 7 positions: 4·7·6² + 2·7²·6; feed-forward 2·7·6·8; then 6·3 for each exit.
    assert count_costs(network, torch.zeros(1, 7, dtype=torch.long)).leaving_at(1) == 1008 + 588 + 672 + 2 * 18


def test_sequences_with_channels_first() -> None:
    network = split([nn.Conv1d(3, 4, 3), nn.ReLU()], [1], 2, (3, 9), channels="first")
    assert [type(head) for head in network.exits] == [Exit, Exit]
    assert network.exits[0].linear.in_features == 4


def test_finding_widths_leaves_statistics_mode_and_randomness_alone() -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Conv2d(4, 4, 3)).train()
    torch.manual_seed(1)
    heads = [nn.Linear(4, 5), nn.Linear(4, 5)]
    torch.manual_seed(1)
    network = split(backbone, [3], 5, (3, 8, 8))
    assert all(torch.equal(a.linear.weight, b.weight) for a, b in zip(network.exits, heads, strict=True))
    assert network.training
    assert backbone[1].running_mean.eq(0).all()


def test_an_activation_behind_a_cut_does_not_overwrite_the_features() -> None:
    layers = [nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)]
    network = split(layers, [1], 2, (3,))
    inputs = torch.randn(50, 3)
    features, logits = network(inputs)
    assert torch.equal(features[0], layers[0](inputs))
    torch.autograd.grad(sum(z.sum() for z in logits.values()), list(network.parameters()))


@pytest.mark.parametrize("cuts", [[0], [7], [3, 3], [5, 3], [-1], [9]])
def test_cuts_that_do_not_divide_are_refused(cuts: list[int]) -> None:
    with pytest.raises(InputError, match="do not divide a backbone of 7 layers; give rising positions between 1 and 6"):
        split(_convolutions(), cuts, 5, (3, 8, 8))


def test_wrong_example_is_refused_with_the_stage() -> None:
    with pytest.raises(InputError, match="stage 3 of the backbone does not take its input: mat1 and mat2") as refusal:
        split(_convolutions(), [3, 5], 5, (3, 9, 9))
    assert "\n" not in str(refusal.value)


def test_stages_that_put_out_no_tensor_are_refused() -> None:
    with pytest.raises(InputError, match="stage 1 of the backbone puts out tuple, where an exit needs one tensor"):
        split([nn.LSTM(3, 4, batch_first=True)], [], 5, (6, 3))
