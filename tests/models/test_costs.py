"""MACs per exit, against known figures and torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.models.builders import batch, build, small
from xfed.models.costs import Costs, count_costs
from xfed.models.network import EarlyExitNetwork

NETWORKS = {
    "ResNet-18, 32×32, 100 classes": ("resnet18", (3, 32, 32), 100),
    "ResNet-18, 64×64, 200 classes": ("resnet18", (3, 64, 64), 200),
    "ConvNet (3 × 128), 32×32, 10 classes": ("convnet", (3, 32, 32), 10),
    "Transformer (4 × d192, ffn 768, len 200)": ("transformer", (200,), 4),
}
# Cumulative MACs in millions, by exit
EXACT = {
    "ResNet-18, 32×32, 100 classes": ["152.771", "287.001", "421.245", "555.514"],
    "ResNet-18, 64×64, 200 classes": ["611.070", "1147.967", "1684.889", "2221.862"],
    "ConvNet (3 × 128), 32×32, 10 classes": ["3.112", "28.033", "30.394"],
    "Transformer (4 × d192, ffn 768, len 200)": ["103.834", "207.669", "311.503", "415.337"],
}
THOP = {
    "ResNet-18, 32×32, 100 classes": ["154.147", "289.066", "423.654", "558.095"],
    "ResNet-18, 64×64, 200 classes": ["616.576", "1156.225", "1694.523", "2232.185"],
    "ConvNet (3 × 128), 32×32, 10 classes": ["3.141", "28.067", "30.428"],
}


def _network(title: str) -> tuple[EarlyExitNetwork, Tensor]:
    name, shape, classes = NETWORKS[title]
    return build(name, shape, classes), _zeros(name, shape)


def _zeros(name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.zeros((1, *shape), dtype=torch.long if name == "transformer" else torch.float32)


def _millions(costs: Costs) -> list[str]:
    return [f"{costs.leaving_at(j) / 1e6:.3f}" for j in range(len(costs.exits))]


@pytest.mark.parametrize("title", NETWORKS)
def test_figures_of_the_specification(title: str) -> None:
    costs = count_costs(*_network(title))
    assert _millions(costs) == EXACT[title]
    if title in THOP:
        assert costs.thop is not None
        assert _millions(costs.thop) == THOP[title]
    else:
        assert costs.thop is None


def test_static_figures_of_the_specification() -> None:
    cifar, tiny, convnet, _ = (count_costs(*_network(title)) for title in NETWORKS)
    assert cifar.thop is not None
    assert tiny.thop is not None
    assert convnet.thop is not None
    assert cifar.static() == 555_468_800
    assert cifar.thop.static() == 557_935_104
    assert f"{tiny.thop.static() / 1e6:.3f}" == "2231.636"
    assert f"{convnet.thop.static() / 1e6:.3f}" == "30.392"


@pytest.mark.parametrize("name", ["convnet", "resnet18", "transformer"])
def test_a_network_with_the_last_exit_alone_costs_the_static_figure(name: str) -> None:
    every, last = (count_costs(small(name, exits=exits), batch(name)) for exits in ("all", "last"))
    assert last.leaving_at(0) == last.static() == every.static()
    assert every.leaving_at(len(every.exits) - 1) == every.static() + sum(every.exits[:-1])


@pytest.mark.parametrize("title", NETWORKS)
def test_counts_equal_torchs_counter(title: str) -> None:
    network, example = _network(title)
    costs = count_costs(network, example)
    for exits in (range(len(costs.exits)), [0], [len(costs.exits) - 1]):
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            network.eval()(example, exits)
        assert 2 * costs.forward(exits) == counter.get_total_flops()


def test_training_equals_torchs_counter_for_images() -> None:
    network = small("convnet")
    costs = count_costs(network, batch("convnet"))
    exits = range(len(costs.exits))
    parameters = list(network.parameters())
    with FlopCounterMode(display=False) as counter:
        loss = sum(logits.sum() for logits in network(batch("convnet", 1)).logits.values())
        torch.autograd.grad(loss, parameters)
    assert 2 * costs.training(exits, backbone_trains=True, exits_train=True) == counter.get_total_flops()


def test_training_equals_torchs_counter_for_text() -> None:
    network = small("transformer", dropout=0.0)
    costs = count_costs(network, batch("transformer"))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = network(batch("transformer", 1), [len(costs.exits) - 1]).logits
        torch.autograd.grad(next(iter(logits.values())).sum(), network.stages.parameters())
    trained = costs.training([len(costs.exits) - 1], backbone_trains=True, exits_train=False)
    assert 2 * trained == counter.get_total_flops()


def test_training_by_hand() -> None:
    costs = Costs(stages=(100, 1000), exits=(10, 20), places=(0, 1), first_layer=60)
    # Forward 1130. Weight gradients cost the forward pass again; so do input gradients, but for the first layer's.
    assert costs.training([0, 1], True, True) == 1130 + 1130 + (1130 - 60)
    assert costs.training([0, 1], True, False) == 1130 + 1100 + (1130 - 60)
    assert costs.training([0, 1], False, True) == 1130 + 30  # nothing passes below the exits
    assert costs.training([0], True, True) == 110 + 110 + (110 - 60)


def test_measuring_leaves_no_trace() -> None:
    network = small("resnet18").train()
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    random_state = torch.random.get_rng_state()
    first = count_costs(network, batch("resnet18"))
    assert network.training
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())
    assert torch.equal(random_state, torch.random.get_rng_state())
    assert first == count_costs(network, batch("resnet18", 1)), "counted per sample"


def test_group_norm_counts_in_neither_convention() -> None:
    batched, grouped = (count_costs(small("resnet18", norm=norm), batch("resnet18")) for norm in ("batch", "group"))
    assert batched.thop is not None
    assert grouped.thop is not None
    assert grouped.stages == batched.stages
    # As thop does. Width 4, one block: stem and two norms on 4 × 32², three norms on 8 × 16², 16 × 8², 32 × 4².
    elements = 3 * 4 * 1024 + 3 * (8 * 256 + 16 * 64 + 32 * 16)
    assert sum(batched.thop.stages) - sum(grouped.thop.stages) == 4 * elements
