"""Pixels and texts as the network takes them, and what is neither."""

from __future__ import annotations

import numpy as np
import pytest

from xfed_runtime.inputs import ImageInputs, InputsError, TextInputs
from xfed_runtime.text import SPECIAL, Vocabulary

FREE = ImageInputs((1, 2, 2), scale=1.0, mean=0.0, std=1.0)
IMAGES = ImageInputs((1, 2, 2), scale=255.0, mean=0.5, std=0.25)
TEXTS = TextInputs(length=4, tokens=5, vocabulary=Vocabulary((*SPECIAL, "oil", "falls")))


@pytest.mark.parametrize("kind", [np.uint8, np.float64, np.int32])
def test_pixels_by_hand(kind: type) -> None:
    prepared = IMAGES.prepare(np.array([[[[0, 255], [51, 102]]]], dtype=kind))
    assert prepared.dtype == np.float32
    np.testing.assert_allclose(prepared, [[[[-2.0, 2.0], [-1.2, -0.4]]]], atol=1e-6)
    np.testing.assert_array_equal(IMAGES.prepare([[[[0, 255], [51, 102]]]]), prepared)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (np.zeros((2, 3, 2, 2)), "2 × 3 × 2 × 2"),
        (np.zeros((1, 2, 2)), "n × 1 × 2 × 2"),
        ([[1, 2], [3]], "takes images"),
        (["a picture"], "inputs are text"),
        ("a picture", "inputs are text"),
        (np.full((1, 1, 2, 2), np.nan), "not finite"),
        (np.full((1, 1, 2, 2), -255), "values from -255 to -255; allowed: 0 to 255"),
        (np.full((1, 1, 2, 2), 255.5), "values from 255.5 to 255.5; allowed: 0 to 255"),
        (np.zeros((1, 1, 2, 2), dtype=complex), "takes images as numbers"),
    ],
)
def test_what_is_no_image(raw: object, why: str) -> None:
    with pytest.raises(InputsError, match=why):
        IMAGES.prepare(raw)


def test_bytes_are_held_to_a_small_scale_too() -> None:
    with pytest.raises(InputsError, match="values from 17 to 17; allowed: 0 to 16"):
        ImageInputs((1, 1, 1), 16.0, 0.5, 0.5).prepare(np.full((1, 1, 1, 1), 17, dtype=np.uint8))


def test_texts_are_encoded_and_cut_to_the_longest() -> None:
    assert TEXTS.prepare(["oil falls", "gas"]).tolist() == [[1, 3, 4], [1, 2, 0]]
    assert TEXTS.prepare(np.array([[1, 4, 0, 0]])).tolist() == [[1, 4]]
    assert TEXTS.prepare(np.zeros((2, 4), dtype=np.int64)).tolist() == [[0], [0]]
    assert TEXTS.prepare(["oil"]).dtype == np.int64


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (np.zeros((1, 5), dtype=np.int64), "at most 4 token ids"),
        (np.zeros((1, 3)), "float64 of shape 1 × 3"),
        (np.array([[1, 5]]), "allowed: 0 to 4"),
        (np.array([[-1, 2]]), "allowed: 0 to 4"),
        ([[1, 2], [1]], "a list of texts, or rows"),
        ("oil falls", "inputs are text"),
    ],
)
def test_what_is_no_text(raw: object, why: str) -> None:
    with pytest.raises(InputsError, match=why):
        TEXTS.prepare(raw)


def test_texts_need_a_vocabulary() -> None:
    with pytest.raises(InputsError, match="no vocabulary"):
        TextInputs(4, 5, None).prepare(["oil"])


def test_someones_own_numbers_have_no_range() -> None:
    """Networks trained on floating point arrays take on devices what they were trained on."""
    values = np.array([[[[-2.65, 0.0], [2.38, 1e6]]]])
    assert FREE.prepare(values).tolist() == values.astype(np.float32).tolist()
    with pytest.raises(InputsError, match="not finite"):
        FREE.prepare(values * np.nan)
    with pytest.raises(InputsError, match="not finite"):
        FREE.prepare(values * 1e39)
    with pytest.raises(InputsError, match=r"takes images as numbers of shape n × 1 × 2 × 2$"):
        FREE.prepare(values[0])
