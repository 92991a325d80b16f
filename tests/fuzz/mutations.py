"""Damaged and forged inputs. `XFED_FUZZ=2000 pytest tests/fuzz` looks longer, at other ones every time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_asked = os.environ.get("XFED_FUZZ")
FUZZ = settings(
    max_examples=int(_asked or 25),
    derandomize=_asked is None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
EXTREME = [0, 1, 0x7F, 0x80, 0xFF]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Change content in some places: bytes, lengths, order; or cut it short."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(1, 16))
        match draw(st.sampled_from(["byte", "extreme", "cut", "insert", "remove", "repeat", "flip"])):
            case "byte":
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "extreme":
                data[place : place + length] = bytes([draw(st.sampled_from(EXTREME))] * length)
            case "cut":
                del data[place:]
            case "insert":
                data[place:place] = draw(st.binary(max_size=16))
            case "remove":
                del data[place : place + length]
            case "repeat":
                data[place:place] = data[place : place + length]
            case "flip" if data:
                data[place] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**40, 1e308]))
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)
"""What JSON and YAML can say."""


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """Change plain values somewhere: an entry becomes something else, goes, or comes."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        name = draw(st.sampled_from(sorted(value, key=str)))
        match draw(st.sampled_from(["inside", "inside", "inside", "drop", "add"])):
            case "inside":
                return {**value, name: draw(altered(value[name]))}
            case "drop":
                return {key: item for key, item in value.items() if key != name}
            case _:
                return {**value, draw(st.text(max_size=8)): draw(PLAIN)}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(altered(value[place])), *value[place + 1 :]]
    return draw(PLAIN)


def outcome(read: Callable[[], Any], *allowed: type[Exception]) -> Any:
    """Read something: what it gives, or one of the errors that a person is told in a sentence."""
    try:
        return read()
    except allowed as error:
        sentence = str(error)
        assert sentence.strip()
        assert "Traceback" not in sentence
        return error
