"""Streaming averages against hand-computed numbers."""

from __future__ import annotations

import pytest
import torch

from xfed.errors import ClientError
from xfed.models.parts import Parts
from xfed.protocol.message import Message
from xfed.protocol.uploads import Uploads


def message(backbone: list[float], last: list[float], samples: int) -> Message:
    return Message({"backbone": torch.tensor(backbone), "last_exit": torch.tensor(last)}, {"samples": samples})


def test_weighted_by_samples() -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes")
    uploads.add(4, message([1.0, 10.0], [5.0], samples=1))
    uploads.add(2, message([3.0, 30.0], [7.0], samples=3))
    # p = (1/4, 3/4): 0.25·1 + 0.75·3 = 2.5 and 0.25·10 + 0.75·30 = 25
    assert uploads.averages(dict)["backbone"].tolist() == [2.5, 25.0]
    assert uploads.stack(Parts.LAST_EXIT).tolist() == [[5.0], [7.0]]
    assert uploads.clients == [4, 2]


def test_uniform() -> None:
    uploads = Uploads(Parts.BACKBONE | Parts.LAST_EXIT, Parts.NONE, "uniform")
    uploads.add(0, message([1.0, 10.0], [5.0], samples=1))
    uploads.add(1, message([3.0, 30.0], [8.0], samples=3))
    assert uploads.averages(dict)["backbone"].tolist() == [2.0, 20.0]
    assert uploads.averages(dict)["last_exit"].tolist() == [6.5]


def test_one_client_gets_its_own_numbers_back_to_the_bit() -> None:
    numbers = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    uploads = Uploads(Parts.BACKBONE, Parts.NONE, "sizes")
    uploads.add(0, Message({"backbone": numbers}, {"samples": 48_611}))
    assert torch.equal(uploads.averages(dict)["backbone"], numbers)


def test_only_collected_parts_are_kept() -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes")
    for client in range(5):
        uploads.add(client, message([1.0, 2.0], [3.0], samples=1))
    kept = [tensor for rows in uploads._rows.values() for tensor in rows] + list(uploads._sums.values())
    assert sum(tensor.numel() for tensor in kept) == 5 * 1 + 2


def test_numbers_that_are_not_finite_name_the_client() -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes")
    with pytest.raises(ClientError, match=r"client 3 diverged: its last_exit"):
        uploads.add(3, message([1.0, 2.0], [float("nan")], samples=1))


def test_undeclared_part_is_refused() -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.NONE, "sizes")
    with pytest.raises(ValueError, match="client 3 holds 'last_exit'"):
        uploads.add(3, message([1.0, 2.0], [3.0], samples=1))
