"""A network in figures, against those computed by hand."""

from __future__ import annotations

import torch

from tests.models.builders import batch, build, small
from xfed.models.describe import describe


def test_resnet_in_figures() -> None:
    network = build("resnet18", (3, 32, 32), 100).train()
    description = describe(network, torch.zeros(2, 3, 32, 32))
    assert network.training
    assert [row.name for row in description.rows] == [
        "stage 1", "exit 1", "stage 2", "exit 2", "stage 3", "exit 3", "stage 4", "exit 4",
    ]  # fmt: skip
    stages, exits = description.rows[::2], description.rows[1::2]
    assert [row.output_shape for row in stages] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert [row.output_shape for row in exits] == [(100,)] * 4
    assert sum(row.parameters for row in stages) == description.backbone == 11_168_832
    assert [row.parameters for row in exits] == [6_500, 12_900, 25_700, 51_300]  # width · 100 + 100
    assert exits[3].bytes == 4 * 51_300
    assert description.exits == 96_400
    assert description.last_exit == 51_300
    assert f"{description.last_exit_share:.3%}" == "0.459%"
    assert sum(row.statistics for row in stages) == 9_600
    # In millions; an exit costs width · 100
    assert [f"{row.macs / 1e6:.3f}" for row in exits] == ["152.771", "287.001", "421.245", "555.514"]
    assert [f"{(row.thop_macs or 0) / 1e6:.3f}" for row in exits] == ["154.147", "289.066", "423.654", "558.095"]
    assert [e.macs - s.macs for s, e in zip(stages, exits, strict=True)] == [6_400, 12_800, 25_600, 51_200]
    assert description.costs.static() == 555_468_800


def test_text_network_has_no_thop_figures() -> None:
    rows = describe(small("transformer"), batch("transformer")).rows
    assert [row.thop_macs for row in rows] == [None] * 6
    assert [row.output_shape for row in rows[:2]] == [(9, 12), (5,)]
    assert [row.statistics for row in rows] == [0] * 6


def test_single_exit() -> None:
    description = describe(small("convnet", exits="last"), batch("convnet"))
    assert [row.name for row in description.rows] == ["stage 1", "stage 2", "stage 3", "exit 1"]
    assert description.exits == description.last_exit
    assert description.rows[-1].macs == description.costs.static()
