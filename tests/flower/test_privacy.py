"""Clipping and noise, against norms and moments computed here."""

from __future__ import annotations

import pytest
import torch

from xfed.flower.privacy import Blur
from xfed.protocol.message import Message

RECEIVED = Message({"backbone": torch.tensor([1.0, 1.0])})


def test_the_update_is_clipped_over_all_tensors_together() -> None:
    upload = Message({"backbone": torch.tensor([4.0, 1.0]), "head": torch.tensor([4.0])}, {"samples": 7})
    left = Blur(clip=1.0, noise=0.0).apply(RECEIVED, upload)  # the update is (3, 0) and (4): norm 5
    assert left.tensors["backbone"].tolist() == pytest.approx([1.6, 1.0])
    assert left.tensors["head"].tolist() == pytest.approx([0.8])
    assert left.values == {"samples": 7}


def test_a_small_update_stays_as_it_is() -> None:
    upload = Message({"backbone": torch.tensor([1.5, 1.0]), "count": torch.tensor([3])})
    left = Blur(clip=1.0, noise=0.0).apply(RECEIVED, upload)
    assert left.tensors["backbone"].tolist() == [1.5, 1.0]
    assert left.tensors["count"].tolist() == [3]


def test_noise_has_the_promised_spread_and_is_never_the_same() -> None:
    same = Message({"backbone": torch.zeros(40_000)})
    first, second = (Blur(clip=2.0, noise=0.5).apply(same, same).tensors["backbone"] for _ in range(2))
    assert float(first.std()) == pytest.approx(1.0, rel=0.03)
    assert abs(float(first.mean())) < 0.03
    assert not torch.equal(first, second)
