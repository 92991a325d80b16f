"""What is counted in a body before it is parsed."""

from __future__ import annotations

import json

import pytest

from xfed_runtime.inputs import ImageInputs, TextInputs
from xfed_runtime.serving.limits import BESIDE_INPUTS, DEEPEST, Extent
from xfed_runtime.serving.schemas import RequestError

IMAGES = ImageInputs((3, 4, 5), 255.0, 0.5, 0.5)
TEXTS = TextInputs(7, 100, None)
SMALL = Extent(strings=4, values=6, lists=3)


def test_what_inputs_need_by_hand() -> None:
    assert Extent.of(IMAGES, 10) == Extent(
        BESIDE_INPUTS + 10 * 2, BESIDE_INPUTS + 10 * 3 * 4 * 5, BESIDE_INPUTS + 10 * (1 + 3 + 3 * 4)
    )
    assert Extent.of(TEXTS, 2) == Extent(BESIDE_INPUTS + 4, BESIDE_INPUTS + 14, BESIDE_INPUTS + 2)


@pytest.mark.parametrize("inputs", [IMAGES, TEXTS])
def test_the_largest_request_passes(inputs: ImageInputs | TextInputs) -> None:
    if isinstance(inputs, ImageInputs):
        channels, height, width = inputs.shape
        one = [[[255] * width] * height] * channels
    else:
        one = [99] * inputs.length  # type: ignore[assignment]
    policy = {"kind": "confidence", "threshold": [0.5] * 20, "enabled": [True] * 20, "note": '\\"[[{,'}
    body = json.dumps({"client": 3, "inputs": [one] * 256, "policy": policy, "budget": "60%"})
    Extent.of(inputs, 256).check(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        '{"a": [1, 2, 3, 4, 5], "b": "[[[[[[[["}',
        r'{"a": "\"\\\",,,,,,,,,[[[\\"}',
        '["a", "b", "c", "d", []]',
        "[[], []]",
        "nonsense",
        "",
    ],
)
def test_what_passes(body: str) -> None:
    SMALL.check(body.encode())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('["a", "b", "c", "d", "e"]', "the request has 5 strings; allowed: up to 4"),
        (r'["\\", "\\", "\\", "\\", "\\"]', "the request has 5 strings"),
        ("[1, 2, 3, 4, 5, 6, 7]", "the request has 7 values; allowed: up to 6"),
        (r'["a\"\\",1,2,3,4,5,6]', "the request has 7 values"),
        ("[[], {}, []]", "the request has 4 lists and objects; allowed: up to 3"),
    ],
)
def test_too_much(body: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as refused:
        SMALL.check(body.encode())
    assert refused.value.status == 413


def test_depth_by_hand() -> None:
    wide = Extent(100, 100, 100)
    wide.check(b"[" * DEEPEST + b"]" * DEEPEST)
    wide.check(b'{"a":' * DEEPEST + b"1" + b"}" * DEEPEST)
    wide.check(b"[[[[]],[[]]],[]]")
    for deep in (b"[" * 9 + b"]" * 9, b'[{"a":' * 5 + b"1" + b"}]" * 5, b"[[],[[[[[[[[]]]]]]]]]", b"[" * 9):
        with pytest.raises(RequestError, match="nested more than 8 deep, or not closed") as refused:
            wide.check(deep)
        assert refused.value.status == 400
