"""ONNX files read byte by byte: every reference is found, nothing damaged is trusted."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from bundles import HOMES, external, in_graph, message

from xfed_runtime.onnx_file import GraphError, external_tensors


@pytest.mark.parametrize("home", HOMES)
def test_a_tensor_is_found_wherever_it_stands(home: Callable[[bytes], bytes]) -> None:
    (found,) = external_tensors(home(external("weights.bin", offset="8", length="8")))
    assert (found.name, found.type, found.dims, found.location) == ("w", 1, [2], "weights.bin")
    content = np.array([9, 9, 1.5, 2.5], dtype=np.float32).view(np.uint8)
    values = found.floats(content)
    assert values is not None
    assert values.tolist() == [1.5, 2.5]


def test_numbers_in_the_graph_itself_need_no_file() -> None:
    assert external_tensors(in_graph(message((1, 2), (2, 1), (9, b"12345678")))) == []
    packed = in_graph(message((1, b"\x02\x03"), (2, 1)))
    assert external_tensors(packed) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not a graph", "no ONNX file|too soon|unknown"),
        (message((7, 5)), "no ONNX file"),
        (in_graph(external("a"))[:-3], "too soon"),
        (message((25, b"")), r"unknown \(field 25 of a model\)"),
        (message((20, b"")), r"unknown \(field 20 of a model\)"),
        (message((7, message((1, message((4, b"EPContext"), (7, b"com.microsoft")))))), "operator of 'com.microsoft'"),
        (
            message(
                (7, message((5, message((13, message((1, b"\xff"))))))),
            ),
            "no text",
        ),
        (b"\xff" * 11, "no ONNX file"),
        (
            in_graph(message((13, message((1, b"location"), (2, b"a"))), (13, message((1, b"location"), (2, b"b"))))),
            "twice",
        ),
    ],
)
def test_what_is_not_understood_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        external_tensors(content)


def test_endless_nesting_is_refused() -> None:
    inner = message((5, b""))
    for _ in range(300):
        inner = message((1, message((5, message((6, inner))))))
    with pytest.raises(GraphError, match="too deeply"):
        external_tensors(message((7, inner)))


@pytest.mark.parametrize(
    "place", [{"offset": "8"}, {"offset": "-1"}, {"length": "99"}, {"offset": "x"}, {"length": "4"}]
)
def test_places_outside_of_the_file(place: dict[str, str]) -> None:
    (found,) = external_tensors(in_graph(external("a", **place)))
    with pytest.raises(GraphError, match="tensor 'w'"):
        found.floats(np.zeros(12, dtype=np.uint8))


def test_damaged_bytes_are_told_never_raised_otherwise() -> None:
    whole = bytearray(in_graph(external("weights.bin", offset="0")))
    generator = random.Random(1)
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            external_tensors(bytes(damaged[: generator.randint(0, len(damaged))]))
        except GraphError:
            continue
