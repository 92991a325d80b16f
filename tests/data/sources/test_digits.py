"""The embedded digits are all there."""

from __future__ import annotations

import torch

from xfed.data.sources.digits import Digits


def test_all_digits() -> None:
    data = Digits().load()
    assert data.inputs.shape == (1797, 1, 8, 8)
    assert data.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert data.inputs.max() == 16
    assert data.inputs[0, 0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert data.normalise(torch.tensor([0, 8, 16])).tolist() == [-1.0, 0.0, 1.0]
