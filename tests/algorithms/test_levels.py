"""Clients that carry part of the network: smaller messages, fewer MACs, averages over those who hold an entry."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.algorithms.conftest import ByteEngine
from tests.bits import contents, differences
from tests.conftest import tiny
from xfed import InputError, Run
from xfed.federation.host import build_trainer
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork, Exit, models, seeded
from xfed.models.parts import Parts
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.message import Message
from xfed.protocol.uploads import Holders, Uploads

# Three 3 × 3 convolutions of width 4 on grey 8 × 8 digits, exits of 10 classes. ScaleFL keeps ⌊0.7 · 4⌋ = 2, ⌊0.75 · 4⌋
# = 3 and 4 channels; numbers and MACs below are weights and biases, and positions × weights, of what each level has.
SCALEFL = {
    1: {"numbers": (18 + 2) + 30, "stages": [64 * 18], "exit": 20},
    2: {"numbers": (27 + 3) + (81 + 3) + 2 * 40, "stages": [64 * 27, 16 * 81], "exit": 30},
    3: {"numbers": 40 + 2 * 148 + 3 * 50, "stages": [64 * 36, 16 * 144, 4 * 144], "exit": 40},
}
DEPTHFL = {
    1: {"numbers": 40 + 50, "stages": [64 * 36], "exit": 40},
    2: {"numbers": 40 + 148 + 2 * 50, "stages": [64 * 36, 16 * 144], "exit": 40},
    3: SCALEFL[3],
}


@pytest.mark.parametrize(("method", "levels"), [("scalefl", SCALEFL), ("depthfl", DEPTHFL)])
def test_messages_and_macs_per_level(
    engines: list[ByteEngine], train: Callable[..., Run], method: str, levels: dict[int, dict[str, object]]
) -> None:
    result = train(method=method, rounds=1, sample=1.0, **{method: {"hetero": True}})
    partition = engines[0].partition
    order = [client for _, client in sorted((-len(s.train), c) for c, s in enumerate(partition))]
    total = 0
    for client, down, up in zip(order, engines[0].downloads, engines[0].uploads, strict=True):
        level = levels[client // 2 + 1]  # six clients, three levels
        for message in (down, up):
            assert sum(tensor.numel() for tensor in message.tensors.values()) == level["numbers"]
        stages, heads = sum(level["stages"]), len(level["stages"]) * level["exit"]  # type: ignore[arg-type, call-overload]
        first = level["stages"][0]  # type: ignore[index]
        total += len(partition[client].train) * (3 * (stages + heads) - first)
    assert result.records()[0].macs == total
    assert result.records()[0].bytes_up == sum(4 * int(str(levels[c // 2 + 1]["numbers"])) + 8 for c in range(6))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["scalefl", "depthfl"])
def test_bits_hold_with_levels(train: Callable[..., Run], method: str) -> None:
    settings = {"method": method, method: {"hetero": True}}
    assert differences(train("serial", **settings), train("two", engine="processes", workers=2, **settings)) == []


def test_every_entry_is_averaged_over_its_holders() -> None:
    """Three entries; client 0 holds the first, client 1 the first two, nobody the third."""
    places = {0: torch.tensor([0]), 1: torch.tensor([0, 1])}
    uploads = Uploads(
        Parts.BACKBONE,
        Parts.NONE,
        "sizes",
        {"backbone": 3},
        holders=Holders(lambda client: {"backbone": places[client]}),
    )
    uploads.add(0, Message({"backbone": torch.tensor([1.0])}, {"samples": 1}))
    uploads.add(1, Message({"backbone": torch.tensor([5.0, 7.0])}, {"samples": 3}))
    # (1 · 1 + 3 · 5) / 4 = 4; 7 from its only holder; the third as it was
    assert uploads.averages(lambda: {"backbone": torch.tensor([9.0, 9.0, 9.0])})["backbone"].tolist() == [4.0, 7.0, 9.0]
    assert uploads.held("backbone").tolist() == [4.0, 3.0, 0.0]


def test_a_narrow_network_is_the_leading_corner() -> None:
    experiment = tiny()
    trainer = build_trainer(experiment, experiment.load_data().card, "cpu")
    subnetworks = Subnetworks(trainer.network, trainer.layout)
    initial = trainer.snapshot()
    small = subnetworks.initial(initial, Level(2, Fraction(3, 4)))
    network, layout = subnetworks.carve(Level(2, Fraction(3, 4)))
    views, full = layout.views(small), trainer.layout.views(initial)
    weight = next(name for name in views if name.startswith("stages.1.") and name.endswith("weight"))
    assert torch.equal(views[weight], full[weight][:3, :3])
    assert torch.equal(views["exits.1.linear.weight"], full["exits.1.linear.weight"][:, :3])
    assert layout.count(Parts.LAST_EXIT) == 0, "its deepest exit is a shallow one of the full network"
    # Outputs of a narrowed convolution are divided by the share of channels.
    layout.bind(network, torch.device("cpu"))
    convolution = next(m for m in network.modules() if isinstance(m, torch.nn.Conv2d))
    image = torch.ones(1, 1, 8, 8)
    plain = torch.nn.functional.conv2d(image, convolution.weight, convolution.bias, padding=1)
    torch.testing.assert_close(convolution(image), plain / 0.75)


def test_feddyn_remembers_what_each_client_moved(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    result = train(method="depthfl", rounds=1, depthfl={"hetero": True, "alpha": 0.2}, sample=1.0)
    found = contents(result)
    partition = engines[0].partition
    order = [client for _, client in sorted((-len(s.train), c) for c, s in enumerate(partition))]
    for client, down, up in zip(order, engines[0].downloads, engines[0].uploads, strict=True):
        for name, after in up.tensors.items():
            expected = -0.2 * (after - down.tensors[name])
            torch.testing.assert_close(found[f"client/{client}/correction.{name}"], expected)


def test_levels_need_aggregated_statistics_and_convolutions(train: Callable[..., Run]) -> None:
    network = {"width": 4, "norm": "batch"}
    with pytest.raises(InputError, match="'scalefl' with hetero needs bn_statistics aggregate"):
        train(method="scalefl", convnet=network, scalefl={"hetero": True})
    assert train(method="scalefl", convnet=network, bn_statistics="aggregate", scalefl={"hetero": True}).finished


def test_a_narrow_convolution_keeps_its_kind() -> None:
    stage = nn.Conv2d(2, 4, 3, stride=2, padding=2, dilation=2, padding_mode="reflect")
    network = EarlyExitNetwork.of([stage], [Exit(4, 2)], "all")
    narrow, _ = Subnetworks(network, Layout.of(network)).carve(Level(1, Fraction(1, 2)))
    [layer] = narrow.stages
    inputs = torch.randn(1, 2, 8, 8)
    padded = functional.pad(inputs, (2, 2, 2, 2), mode="reflect")
    expected = 2 * functional.conv2d(padded, layer.weight, layer.bias, stride=2, dilation=2)  # half of the channels
    torch.testing.assert_close(layer(inputs), expected)


def test_width_levels_refuse_groups_of_channels() -> None:
    network = EarlyExitNetwork.of([nn.Conv2d(8, 8, 3, groups=8)], [Exit(8, 2)], "all")
    with pytest.raises(InputError, match="convolutions in 8 groups has no narrower form"):
        Subnetworks(network, Layout.of(network)).carve(Level(1, Fraction(1, 2)))


def test_width_levels_refuse_a_transformer() -> None:
    source = models.get("transformer")
    settings = source.resolve({"vocabulary": 16, "width": 8, "depth": 2, "feedforward": 8})
    network = seeded(source(settings), (6,), 4, "all", 1)
    with pytest.raises(InputError, match="levels by width need convolutions"):
        Subnetworks(network, Layout.of(network)).carve(Level(1, Fraction(3, 4)))
