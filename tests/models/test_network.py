"""Stages and exits: what runs, what does not, and what is refused."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from tests.models.builders import batch, build, small
from xfed.errors import InputError
from xfed.models.network import EarlyExitNetwork, Exit, ModelSource, hidden, models, refuse_memory, seeded

NAMES = ["convnet", "resnet18", "transformer"]


def test_built_in_networks_are_registered() -> None:
    assert set(NAMES) <= {component.name for component in models}


@pytest.mark.parametrize("name", NAMES)
def test_active_exits_run_no_deeper_stage_and_no_other_exit(name: str) -> None:
    network, ran = small(name).eval(), []
    for kind, modules in (("stage", network.stages), ("exit", network.exits)):
        for index, module in enumerate(modules):
            module.register_forward_hook(lambda *_, what=(kind, index): ran.append(what))
    everything = network(batch(name))
    ran.clear()
    outputs = network(batch(name), active=[1])
    assert ran == [("stage", 0), ("stage", 1), ("exit", 1)]
    assert list(outputs.logits) == list(outputs.features) == [1]
    assert torch.equal(outputs.logits[1], everything.logits[1])


@pytest.mark.parametrize("name", NAMES)
def test_last_placement_keeps_the_backbone_and_one_exit(name: str) -> None:
    every, last = small(name), small(name, exits="last")
    assert len(last.stages) == len(every.stages)
    assert last.places == (len(every.stages) - 1,)
    assert list(last(batch(name)).logits) == [0]
    backbone = [tensor for key, tensor in every.state_dict().items() if key.startswith("stages.")]
    assert len(backbone) == sum(key.startswith("stages.") for key in last.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    torch.manual_seed(5)
    first = small(name).state_dict()
    torch.manual_seed(6)
    before = torch.random.get_rng_state()
    second = small(name).state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(tensor, second[key]) for key, tensor in first.items())


@pytest.mark.parametrize("name", NAMES)
def test_features_are_what_the_exit_classifies(name: str) -> None:
    network = small(name).eval()
    features, logits = network(batch(name))
    for index, head in enumerate(network.exits):
        expected = features[index] @ head.linear.weight.T + head.linear.bias
        assert torch.allclose(logits[index], expected, atol=1e-6)


@pytest.mark.parametrize(("name", "shape"), [("convnet", (200,)), ("resnet18", (200,)), ("transformer", (3, 32, 32))])
def test_inputs_of_the_wrong_kind_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=rf"model '{name}' takes (images|text) .*not inputs of shape") as refusal:
        build(name, shape, 4)
    assert "\n" not in str(refusal.value)


def test_hidden_is_the_first_of_a_state() -> None:
    vectors, mask = torch.ones(2, 3), torch.zeros(2)
    assert hidden(vectors) is vectors
    assert hidden((vectors, mask)) is vectors


def test_exits_sit_in_rising_order_and_one_at_the_end() -> None:
    stages = [nn.Identity(), nn.Identity()]
    for places in ([0], [1, 0], [0, 0]):
        with pytest.raises(ValueError, match="rising places"):
            EarlyExitNetwork(stages, [Exit(1, 2) for _ in places], places)


class _Broken(ModelSource):
    name = "broken"

    def build(self, *_: object) -> EarlyExitNetwork:
        return self.settings


def test_moving_average_without_momentum_is_refused() -> None:
    network = EarlyExitNetwork.of([nn.BatchNorm2d(3, momentum=None)], [Exit(3, 2)], "all")
    with pytest.raises(InputError, match="'broken' has a BatchNorm2d layer with momentum=None"):
        seeded(_Broken(network), (3, 8, 8), 2, "all", 1)


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return inputs


@pytest.mark.parametrize(
    ("stage", "buffer"),
    [(_Counting(), "stages.0.calls"), (spectral_norm(nn.Conv2d(3, 3, 3)), "stages.0.parametrizations.weight.0._u")],
)
def test_memory_that_would_pass_from_client_to_client_is_refused(stage: nn.Module, buffer: str) -> None:
    network = EarlyExitNetwork.of([stage], [Exit(3, 2)], "all")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(InputError, match=rf"model 'mine' changes its buffer {re.escape(buffer)} while it trains"):
        refuse_memory("mine", network, torch.randn(1, 3, 8, 8))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_statistics_and_constants_are_no_such_memory() -> None:
    stage = nn.Sequential(nn.BatchNorm2d(3), nn.InstanceNorm2d(3, track_running_stats=True))
    stage.register_buffer("scale", torch.ones(3))
    refuse_memory("mine", EarlyExitNetwork.of([stage], [Exit(3, 2)], "all"), torch.randn(1, 3, 8, 8))


def test_one_tensor_in_two_places_is_refused() -> None:
    shared = nn.Linear(3, 3)
    network = EarlyExitNetwork.of([shared, nn.Sequential(shared)], [Exit(3, 2), Exit(3, 2)], "all")
    with pytest.raises(InputError, match=r"'broken' uses one tensor as stages.0.weight and as stages.1.0.weight"):
        seeded(_Broken(network), (3,), 2, "all", 1)


def test_average_pool_of_an_exit() -> None:
    maps = Tensor([[[[1.0, 2.0], [3.0, 6.0]], [[0.0, 0.0], [0.0, 4.0]]]])
    assert Exit(2, 3).pool(maps).tolist() == [[3.0, 1.0]]
