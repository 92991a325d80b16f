"""Messages: bytes are counted exactly and survive the wire bit for bit."""

from __future__ import annotations

import torch

from xfed.protocol.message import Message


def test_bytes_are_tensors_plus_eight_per_number() -> None:
    message = Message({"a": torch.zeros(3), "b": torch.zeros(2, 2, dtype=torch.float64)}, {"n": 4, "list": [1, 2, 3]})
    assert message.nbytes == 3 * 4 + 4 * 8 + 8 * (1 + 3)
    assert Message().nbytes == 0


def test_round_trip_keeps_bits() -> None:
    odd = torch.tensor([1.1, -0.0, float("inf"), 1e-45])
    message = Message({"a": odd, "empty": torch.zeros(0)}, {"n": 4, "x": 0.1, "list": [1, 2]})
    back = Message.from_bytes(message.to_bytes())
    assert back.values == message.values
    assert back.tensors["a"].view(torch.int32).tolist() == odd.view(torch.int32).tolist()
    assert back.tensors["empty"].shape == (0,)


def test_having_replaces_and_leaves_the_original() -> None:
    message = Message({"a": torch.zeros(1)}, {"n": 1})
    other = message.having({"a": torch.ones(1)}, n=2, m=3)
    assert (other.tensors["a"].item(), other.values) == (1.0, {"n": 2, "m": 3})
    assert (message.tensors["a"].item(), message.values) == (0.0, {"n": 1})
