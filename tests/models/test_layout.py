"""The flat vector: every number in one part, on its boundary, with its gradient beside it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.models.builders import batch, small
from xfed.models.layout import Layout, ModelState
from xfed.models.network import EarlyExitNetwork
from xfed.models.parts import Parts

CPU = torch.device("cpu")
NETWORKS = {
    "convnet": {},
    "convnet with batch norm": {"norm": "batch"},
    "resnet18": {},
    "resnet18 with group norm": {"norm": "group"},
    "transformer": {},
}


def _bound(title: str) -> tuple[EarlyExitNetwork, Layout, ModelState]:
    network = small(title.split()[0], **NETWORKS[title])
    layout = Layout.of(network)
    return network, layout, layout.bind(network, CPU)


@pytest.mark.parametrize("title", NETWORKS)
def test_every_number_is_in_exactly_one_part(title: str) -> None:
    network, layout, state = _bound(title)
    assert layout.count(Parts.BACKBONE) == sum(p.numel() for p in network.stages.parameters())
    assert layout.count(Parts.LAST_EXIT) == sum(p.numel() for p in network.exits[-1].parameters())
    assert layout.count(Parts.MODEL) == sum(p.numel() for p in network.parameters())
    covered = torch.zeros(layout.size, dtype=torch.int)
    for entry in layout.entries:
        covered[entry.start : entry.stop] += 1
    assert covered.max() == 1
    assert covered.sum() == layout.count(Parts.MODEL) <= layout.size
    assert (state.parameters[covered == 0] == 0).all(), "padding holds nothing"


@pytest.mark.parametrize("title", NETWORKS)
def test_stages_and_exits_start_on_64_bytes(title: str) -> None:
    _, layout, state = _bound(title)
    starts: dict[str, int] = {}
    for entry in layout.entries:
        starts.setdefault(".".join(entry.name.split(".")[:2]), entry.start)
    assert len(starts) == 2 * layout.exits
    assert all(4 * start % 64 == 0 for start in starts.values())
    assert 4 * layout.size % 64 == 0
    assert state.parameters.data_ptr() % 64 == 0


def test_padding_is_not_counted() -> None:
    network = EarlyExitNetwork.of([nn.Linear(3, 5), nn.Linear(5, 5)], [nn.Linear(5, 2), nn.Linear(5, 2)], "all")
    layout = Layout.of(network)
    # 20 and 30 numbers in the stages, 12 in each exit; starts are multiples of 16 numbers: 0, 32, 64, 80, end 96.
    assert [e.start for e in layout.entries] == [0, 15, 32, 57, 64, 74, 80, 90]
    assert layout.size == 96
    assert layout.count(Parts.MODEL) == 20 + 30 + 12 + 12
    assert layout.count(Parts.BACKBONE) == 50
    assert len(layout.gather(layout.bind(network, CPU), Parts.BACKBONE)) == 50


@pytest.mark.parametrize("title", NETWORKS)
def test_gather_and_scatter_are_inverse(title: str) -> None:
    network, layout, state = _bound(title)
    expected = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    packed = layout.pack(state, Parts.MODEL | Parts.STATISTICS)
    assert ("statistics" in packed) == (title in ("convnet with batch norm", "resnet18"))
    other = ModelState(torch.full_like(state.parameters, 7.0), torch.full_like(state.statistics, 7.0))
    layout.unpack(other, packed)
    for name, tensor in layout.pack(other, Parts.MODEL | Parts.STATISTICS).items():
        assert torch.equal(tensor, packed[name])
    assert (other.parameters == 7).sum() >= layout.size - layout.count(Parts.MODEL), "padding is left alone"
    for key, tensor in layout.named(packed).items():
        assert torch.equal(tensor, expected[key])
    with pytest.raises(ValueError, match="backbone has 3 numbers"):
        layout.scatter(state, Parts.BACKBONE, torch.zeros(3))


@pytest.mark.parametrize("title", NETWORKS)
def test_bound_tensors_are_views_of_the_flat_vectors(title: str) -> None:
    network, layout, state = _bound(title)
    state.parameters.fill_(0.5)
    state.statistics.fill_(0.25)
    assert all((parameter == 0.5).all() for parameter in network.parameters())
    running = [b for name, b in network.named_buffers() if name.endswith(("running_mean", "running_var"))]
    assert sum(buffer.numel() for buffer in running) == layout.count(Parts.STATISTICS)
    assert all((buffer == 0.25).all() for buffer in running)


@pytest.mark.parametrize("title", NETWORKS)
def test_binding_keeps_the_answers(title: str) -> None:
    name = title.split()[0]
    network = small(name, **NETWORKS[title]).eval()
    before = network(batch(name)).logits
    Layout.of(network).bind(network, CPU)
    assert all(torch.equal(before[j], logits) for j, logits in network(batch(name)).logits.items())


@pytest.mark.parametrize("title", NETWORKS)
def test_gradients_of_a_bound_network_lie_as_its_parameters(title: str) -> None:
    name = title.split()[0]
    free = small(name, **NETWORKS[title]).eval()
    bound = copy.deepcopy(free)
    Layout.of(bound).bind(bound, CPU)
    for parameter in bound.parameters():
        parameter.requires_grad_(False).requires_grad_(True)  # as the trainer does between phases

    def gradients(network: EarlyExitNetwork) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(sum(z.square().sum() for z in network(batch(name)).logits.values()),
                                   list(network.parameters()))  # fmt: skip

    for gradient, expected in zip(gradients(bound), gradients(free), strict=True):
        assert gradient.is_contiguous()
        assert torch.equal(gradient, expected)


def test_convolutions_really_give_gradients_in_another_order() -> None:
    """Without this the test above would hold for nothing."""
    network = small("convnet")
    weight = network.stages[1][0].weight
    (gradient,) = torch.autograd.grad(network(batch("convnet")).logits[2].sum(), weight)
    assert not gradient.is_contiguous()


def test_equal_networks_have_equal_layouts() -> None:
    assert Layout.of(small("resnet18")) == Layout.of(small("resnet18"))
    assert Layout.of(small("resnet18")) != Layout.of(small("resnet18", width=8))
