"""Streaming averages against hand-computed numbers."""

from __future__ import annotations

import pytest
import torch

from xfed.errors import ClientError
from xfed.models.parts import Parts
from xfed.protocol.message import Message
from xfed.protocol.uploads import RejectedError, Uploads

SIZES = {"backbone": 2, "last_exit": 1}


def message(backbone: list[float], last: list[float], samples: int) -> Message:
    return Message({"backbone": torch.tensor(backbone), "last_exit": torch.tensor(last)}, {"samples": samples})


def test_weighted_by_samples() -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes", SIZES)
    uploads.add(4, message([1.0, 10.0], [5.0], samples=1))
    uploads.add(2, message([3.0, 30.0], [7.0], samples=3))
    # p = (1/4, 3/4): 0.25·1 + 0.75·3 = 2.5 and 0.25·10 + 0.75·30 = 25
    assert uploads.averages(dict)["backbone"].tolist() == [2.5, 25.0]
    assert uploads.stack(Parts.LAST_EXIT).tolist() == [[5.0], [7.0]]
    assert uploads.clients == [4, 2]


def test_uniform() -> None:
    uploads = Uploads(Parts.BACKBONE | Parts.LAST_EXIT, Parts.NONE, "uniform", SIZES)
    uploads.add(0, message([1.0, 10.0], [5.0], samples=1))
    uploads.add(1, message([3.0, 30.0], [8.0], samples=3))
    assert uploads.averages(dict)["backbone"].tolist() == [2.0, 20.0]
    assert uploads.averages(dict)["last_exit"].tolist() == [6.5]


def test_one_client_gets_its_own_numbers_back_to_the_bit() -> None:
    numbers = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    uploads = Uploads(Parts.BACKBONE, Parts.NONE, "sizes", {"backbone": 10_000})
    uploads.add(0, Message({"backbone": numbers}, {"samples": 48_611}))
    assert torch.equal(uploads.averages(dict)["backbone"], numbers)


def test_only_collected_parts_are_kept() -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes", SIZES)
    for client in range(5):
        uploads.add(client, message([1.0, 2.0], [3.0], samples=1))
    kept = [tensor for each in uploads._kept.values() for tensor in each.tensors.values()]
    kept += list(uploads._sums.values())
    assert sum(tensor.numel() for tensor in kept) == 5 * 1 + 2


@pytest.mark.parametrize(
    ("upload", "sentence"),
    [
        (message([1.0, 2.0], [float("nan")], samples=1), "diverged: its last_exit is not finite"),
        (message([1.0, 2.0, 3.0], [1.0], samples=1), r"its backbone has shape \(3,\); allowed: 2 numbers in a row"),
        (Message({"last_exit": torch.ones(1)}, {"samples": 1}), "its upload lacks 'backbone'"),
        (message([1.0, 2.0], [1.0], samples=1).having({"shallow_exits": torch.ones(1)}), "'shallow_exits', which"),
        (message([1.0, 2.0], [1.0], samples=0), "it reports 0 samples"),
        (message([1.0, 2.0], [1.0], samples=1).having({"last_exit": torch.ones(1).double()}), "of torch.float64"),
    ],
)
def test_what_is_not_as_declared_is_rejected_whole(upload: Message, sentence: str) -> None:
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes", SIZES)
    uploads.add(1, message([5.0, 6.0], [7.0], samples=2))
    with pytest.raises(RejectedError, match=sentence):
        uploads.add(3, upload)
    assert uploads.clients == [1]
    assert uploads.averages(dict)["backbone"].tolist() == [5.0, 6.0]


def test_rows_are_keyed_by_client_and_what_was_sent_is_remembered() -> None:
    sent = {4: Message({"last_exit": torch.zeros(1)}), 2: Message({"last_exit": torch.ones(1)})}
    uploads = Uploads(Parts.BACKBONE, Parts.LAST_EXIT, "sizes", SIZES, more=("extra",), sent=sent)
    uploads.add(2, message([1.0, 2.0], [3.0], samples=1).having({"extra.0": torch.tensor([9.0])}, loss=0.5))
    uploads.add(4, message([1.0, 2.0], [4.0], samples=1))
    assert uploads.of(2).values["loss"] == 0.5
    assert uploads.of(4).tensors["last_exit"].item() == 4.0
    assert uploads.sent(2).tensors["last_exit"].item() == 1.0
    with pytest.raises(ClientError, match=r"the upload of client 4 lacks 'extra\.0'"):
        uploads.stack("extra.0")
