"""What PyTorch's networks are asked: the same inputs that devices take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from xfed.data.card import DataCard
from xfed.errors import InputError
from xfed.inference.answering import checked
from xfed_runtime.text import SPECIAL

PIXELS = DataCard("pixels", "", "image", (1, 2, 2), ("a", "b"), scale=255.0, mean=0.5, std=0.5)
FLOATS = DataCard("floats", "", "image", (1, 2, 2), ("a", "b"), scale=1.0, mean=0.0, std=1.0)
TOKENS = DataCard("tokens", "", "text", (4,), ("a", "b"), scale=1.0, mean=0.0, std=1.0, tokens=5)
TEXTS = DataCard(
    "texts", "", "text", (4,), ("a", "b"), scale=1.0, mean=0.0, std=1.0, tokens=4, vocabulary=(*SPECIAL, "oil", "falls")
)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
def test_arrays_tensors_and_lists_alike(kind: type) -> None:
    array = np.array([[[[0, 255], [51, 102]]]], dtype=kind)
    for given in (array, torch.from_numpy(array), array.tolist(), array[:, :, ::-1][:, :, ::-1]):
        assert checked(given, PIXELS).tolist() == array.tolist()


@pytest.mark.parametrize(
    ("card", "wrong", "sentence"),
    [
        (PIXELS, np.full((1, 1, 2, 2), np.nan), "not finite"),
        (PIXELS, np.full((1, 1, 2, 2), 256.0), "values from 256 to 256; allowed: 0 to 255"),
        (PIXELS, torch.full((1, 1, 2, 2), -1), "values from -1 to -1; allowed: 0 to 255"),
        (PIXELS, np.zeros((1, 2, 2)), "float64 of shape 1 × 2 × 2; this network takes images .* from 0 to 255"),
        (PIXELS, ["a picture"], "inputs are text"),
        (PIXELS, 3.0, "of shape none"),
        (FLOATS, np.full((1, 1, 2, 2), np.inf), "not finite"),
        (FLOATS, np.zeros(3), "takes images as numbers of shape n × 1 × 2 × 2$"),
        (TOKENS, ["oil falls"], "no vocabulary; give rows of token ids"),
        (TOKENS, np.array([[1, 5]]), "token ids from 1 to 5; allowed: 0 to 4"),
        (TOKENS, np.zeros((1, 5), dtype=np.int64), "at most 4 token ids"),
        (TEXTS, np.zeros((1, 4)), "a list of texts, or rows"),
    ],
)
def test_what_a_device_refuses_is_refused(card: DataCard, wrong: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        checked(wrong, card)


def test_numbers_that_were_trained_on_as_they_are_have_no_bounds() -> None:
    assert checked(np.full((1, 1, 2, 2), -3.5), FLOATS).tolist() == [[[[-3.5, -3.5], [-3.5, -3.5]]]]


def test_texts_become_rows_as_the_data_set_stores_them() -> None:
    assert checked(["oil falls", "gas"], TEXTS).tolist() == [[1, 3, 4, 0], [1, 2, 0, 0]]
    assert checked(np.array([[1, 3, 4, 0]], dtype=np.int32), TEXTS).tolist() == [[1, 3, 4, 0]]
