"""Clipping and noise, against norms and moments computed here."""

from __future__ import annotations

from functools import reduce
from operator import xor

import pytest
import torch

pytest.importorskip("flwr")
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

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


def test_masks_of_flower_depend_on_32_bits_of_a_key() -> None:
    """Why secure aggregation is not offered; where this fails, Flower has better ones, and the page must change."""
    key = bytes(range(7, 39))
    folded = bytes(28) + bytes(reduce(xor, key[place::4]) for place in range(4))
    [mask], [same] = (pseudo_rand_gen(each, 2**32, [(50,)]) for each in (key, folded))
    assert len(set(mask.tolist())) > 40
    assert mask.tolist() == same.tolist()
