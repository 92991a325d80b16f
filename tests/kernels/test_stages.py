"""The compiled stages against torch in double precision."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.kernels.compiled import needs_compiler
from tests.models.builders import batch, build
from xfed.kernels.choice import Kernels
from xfed.kernels.library import identity, library
from xfed.kernels.stages import FusedStage, fits, fuse
from xfed.models.costs import count_costs
from xfed.models.images import ChannelsLast

pytestmark = needs_compiler


def stage_of(channels: int, outputs: int, kernel: int, padding: int, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, outputs, kernel, padding=padding, bias=bias), nn.MaxPool2d(2), nn.ReLU())


def fused(stage: nn.Sequential) -> nn.Sequential:
    made = copy.deepcopy(stage)
    assert fits(made)
    fuse(made)
    return made


def whole_numbers(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw eighths from -1 to 1: products and sums are exact, so ties and zeros are common and alike everywhere."""
    return torch.randint(-8, 9, shape, generator=generator).float() / 8


def relative(ours: Tensor, reference: Tensor) -> float:
    return float((ours.double() - reference).abs().max() / reference.abs().max().clamp(min=1e-9))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, int | bool | str]:
    kernel = draw(st.sampled_from([3, 5]))
    padding = draw(st.integers(0, 2))
    smallest = max(1, kernel + 1 - 2 * padding)
    lanes = library().lanes
    return {
        "images": draw(st.integers(1, 4)),
        "channels": draw(st.sampled_from([1, 2, 3, 4, lanes, 2 * lanes, 3 * lanes, 5 * lanes])),
        "height": draw(st.integers(smallest, smallest + 9)),
        "width": draw(st.integers(smallest, smallest + 9)),
        "outputs": draw(st.integers(1, 70)),
        "kernel": kernel,
        "padding": padding,
        "bias": draw(st.booleans()),
        "order": draw(st.sampled_from(["row-major", "channels-last", "every other"])),
        "seed": draw(st.integers(0, 10_000)),
    }


@settings(max_examples=60, deadline=None)
@given(cases())
def test_values_and_gradients_equal_double_precision(case: dict[str, int]) -> None:
    generator = torch.Generator().manual_seed(case["seed"])
    stage = stage_of(case["channels"], case["outputs"], case["kernel"], case["padding"], bool(case["bias"]))
    for parameter in stage.parameters():
        parameter.data = whole_numbers(generator, *parameter.shape)
    inputs = whole_numbers(generator, case["images"], case["channels"], case["height"], case["width"])
    is_image = case["channels"] <= 4
    reference, exact = copy.deepcopy(stage).double(), inputs.double().requires_grad_(not is_image)
    if case["order"] == "channels-last":
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    elif case["order"] == "every other":
        inputs = inputs.repeat_interleave(2, dim=3)[..., ::2]
    inputs.requires_grad_(not is_image)
    quick = fused(stage)
    ours, theirs = quick(inputs), reference(exact)
    assert torch.equal(ours.double(), theirs)
    slopes = whole_numbers(generator, *theirs.shape)
    own, passed = [*quick.parameters()], [*reference.parameters()]
    if not is_image:
        own, passed = [*own, inputs], [*passed, exact]
    gradients = torch.autograd.grad((ours * slopes).sum(), own)
    expected = torch.autograd.grad((theirs * slopes.double()).sum(), passed)
    for found, wanted in zip(gradients, expected, strict=True):
        assert torch.equal(found.double(), wanted)


@pytest.mark.parametrize("channels", [3, 32])
def test_ordinary_numbers(channels: int) -> None:
    torch.manual_seed(4)
    stage = stage_of(channels, 40, 3, 1)
    inputs = torch.randn(6, channels, 13, 11).requires_grad_(channels > 4)
    reference = copy.deepcopy(stage).double()
    ours = fused(stage)(inputs)
    assert relative(ours.detach(), reference(inputs.detach().double()).detach()) < 1e-5
    assert ours.is_contiguous(memory_format=torch.channels_last)


def test_what_is_no_number_shows() -> None:
    for channels in (3, 16 if library().lanes == 16 else 8):
        stage = fused(stage_of(channels, 4, 3, 1))
        with torch.no_grad():
            for value, place in ((float("nan"), (0, 0)), (float("inf"), (1, 0))):
                inputs = torch.zeros(1, channels, 4, 4)
                inputs[0, 0, *place] = value
                assert not torch.isfinite(stage(inputs)).all()


def test_frozen_weights_get_no_gradient_and_pass_theirs_on() -> None:
    torch.manual_seed(1)
    stage = stage_of(2 * library().lanes, 8, 3, 0)
    inputs = torch.randn(2, 2 * library().lanes, 8, 8, requires_grad=True)
    [wanted] = torch.autograd.grad(stage(inputs).sum(), inputs)
    frozen = fused(stage).requires_grad_(False)
    [found] = torch.autograd.grad(frozen(inputs).sum(), inputs)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_an_image_that_wants_a_gradient_goes_layer_by_layer() -> None:
    torch.manual_seed(1)
    stage, images = stage_of(3, 8, 3, 0), torch.randn(2, 3, 8, 8, requires_grad=True)
    [wanted] = torch.autograd.grad(stage(images).sum(), images)
    assert torch.equal(torch.autograd.grad(fused(stage)(images).sum(), images)[0], wanted)


def convolution(**changes: object) -> nn.Conv2d:
    return nn.Conv2d(**{"in_channels": 3, "out_channels": 4, "kernel_size": 3, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "layers",
    [
        [convolution(kernel_size=7), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(kernel_size=(3, 5)), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(stride=2), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(dilation=2), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(padding="same"), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(padding=(0, 1)), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(padding=1, padding_mode="reflect"), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(in_channels=6), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(in_channels=4, groups=2), nn.MaxPool2d(2), nn.ReLU()],
        [convolution().double(), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(), nn.MaxPool2d(3), nn.ReLU()],
        [convolution(), nn.MaxPool2d(2, stride=1), nn.ReLU()],
        [convolution(), nn.MaxPool2d(2, padding=1), nn.ReLU()],
        [convolution(), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()],
        [convolution(), nn.AvgPool2d(2), nn.ReLU()],
        [convolution(), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.ReLU()],
        [convolution(), nn.MaxPool2d(2)],
    ],
)
def test_other_stages_do_not_fit(layers: list[nn.Module]) -> None:
    assert not fits(nn.Sequential(*layers))


def test_relu_before_the_pool_fits_too() -> None:
    torch.manual_seed(2)
    stage = nn.Sequential(ChannelsLast(), convolution(), nn.ReLU(), nn.MaxPool2d(2))
    images = torch.randn(2, 3, 9, 9)
    assert torch.allclose(fused(stage)(images), stage(images), atol=1e-6)


def test_a_network_keeps_names_numbers_and_counted_costs() -> None:
    plain, quick = (build("convnet", (3, 32, 32), 5, width=16) for _ in range(2))
    indices = tuple(index for index, stage in enumerate(plain.stages) if fits(stage))
    Kernels(identity(), indices).apply(quick)
    assert [type(stage) is FusedStage for stage in quick.stages] == [index in indices for index in range(3)]
    assert 0 in indices
    assert list(quick.state_dict()) == list(plain.state_dict())
    assert count_costs(quick, batch("convnet")) == count_costs(plain, batch("convnet"))
    ours, theirs = quick(batch("convnet")).logits, plain(batch("convnet")).logits
    assert all(torch.allclose(ours[j], theirs[j], atol=1e-5) for j in range(3))


def test_bits_do_not_depend_on_the_rest_of_the_batch() -> None:
    network = build("convnet", (3, 32, 32), 5, width=16)
    Kernels(identity(), tuple(i for i, stage in enumerate(network.stages) if fits(stage))).apply(network)
    images = batch("convnet", 9)
    with torch.no_grad():
        states = [list(network.states(images[:count])) for count in (9, 4, 2)]
    for more, fewer in pairwise(states):
        assert all(torch.equal(a[: len(b)], b) for a, b in zip(more, fewer, strict=True))
