"""What an ONNX file refers to, read from its bytes without the onnx package.

A graph names files that hold its numbers. ONNX Runtime opens them, and versions before 1.24 open any file of the
machine. So the names are read here first, wherever a tensor can stand: initializers, attributes of nodes, branches of
`If`, sparse tensors. A file is a tree of protobuf messages; the tables say which fields of a message hold messages
that matter. A field that they do not list is refused, as nobody knows what a later version puts there; so are
functions, training graphs and operators that are not ONNX's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
DEEPEST = 100

MODEL = {7: "graph"}
GRAPH = {1: "node", 5: "tensor", 15: "sparse"}
NODE = {5: "attribute"}
ATTRIBUTE = {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"}
SPARSE = {1: "tensor", 2: "tensor"}
HOLDS: dict[str, dict[int, str]] = {
    "model": MODEL,
    "graph": GRAPH,
    "node": NODE,
    "attribute": ATTRIBUTE,
    "sparse": SPARSE,
}
"""Fields of a message that hold messages to look into."""
PLAIN = {
    "model": {1, 2, 3, 4, 5, 6, 8, 14},  # versions, producer, operator sets, metadata
    "graph": {2, 10, 11, 12, 13, 14, 16},  # names, values' types, annotations
    "node": {1, 2, 3, 4, 6, 8, 9},
    "attribute": {1, 2, 3, 4, 7, 8, 9, 13, 14, 15, 20, 21},
    "sparse": {3},
}
"""Fields that hold nothing to look into: text, numbers, types."""

DOMAIN = 7
"""Field of a node that says whose operator it is: empty or ai.onnx for ONNX's own."""
NUMBERS = {1: "float32", 10: "float16", 11: "float64"}
"""Types of tensors whose numbers may not be finite."""


class GraphError(ValueError):
    """A graph that cannot be trusted, told in one sentence."""


@dataclass
class Tensor:
    """A tensor of a graph: its place in another file, where it has one."""

    name: str = ""
    type: int = 0
    dims: list[int] = field(default_factory=list)
    external: dict[str, str] = field(default_factory=dict)

    @property
    def location(self) -> str | None:
        """Name the file that holds the numbers; none where the graph does."""
        return self.external.get("location")

    def floats(self, content: NDArray[np.uint8]) -> NDArray[Any] | None:
        """Give the numbers from the file that holds them, where they are floating-point."""
        offset, size = self._number("offset", 0), math.prod(self.dims)
        length = self._number("length", len(content) - offset)
        if offset < 0 or length < 0 or offset + length > len(content):
            raise GraphError(f"tensor {self.name!r} lies outside of its file {self.location!r}")
        if self.type not in NUMBERS:
            return None
        kind = np.dtype(NUMBERS[self.type])
        if length != size * kind.itemsize:
            raise GraphError(f"tensor {self.name!r} has {length} bytes for {size} numbers")
        return content[offset : offset + length].view(kind)

    def _number(self, key: str, default: int) -> int:
        text = self.external.get(key, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise GraphError(f"tensor {self.name!r} has {key} {text!r}")
        return int(text)


def external_tensors(content: bytes) -> list[Tensor]:
    """Find all tensors of an ONNX file whose numbers are in other files; refuse what is not understood."""
    found: list[Tensor] = []
    waiting: list[tuple[str, memoryview, int]] = [("model", memoryview(content), 0)]
    while waiting:
        kind, message, depth = waiting.pop()
        if depth > DEEPEST:
            raise GraphError("its graphs are nested too deeply")
        if kind == "tensor":
            tensor = _tensor(message)
            found += [tensor] if tensor.external else []
            continue
        for number, value in _fields(message):
            inside = HOLDS[kind].get(number)
            if inside is not None:
                waiting.append((inside, _message(value), depth + 1))
            elif kind == "node" and number == DOMAIN:
                domain = _text(value)
                if domain not in ("", "ai.onnx"):
                    raise GraphError(f"it has an operator of {domain!r}; allowed are ONNX's own")
            elif number not in PLAIN[kind]:
                raise GraphError(f"it has something unknown (field {number} of a {kind})")
    return found


def _tensor(message: memoryview) -> Tensor:
    """Read name, type, size and place; numbers in the file itself are passed over."""
    tensor = Tensor()
    for number, value in _fields(message):
        if number == 1:
            tensor.dims += [value] if isinstance(value, int) else _varints(value)
        elif number == 2 and isinstance(value, int):
            tensor.type = value
        elif number == 8:
            tensor.name = _text(value)
        elif number == 13:
            entry = dict(_fields(_message(value)))
            key = _text(entry.get(1, memoryview(b"")))
            if key in tensor.external:
                raise GraphError(f"tensor {tensor.name!r} names its {key} twice")
            tensor.external[key] = _text(entry.get(2, memoryview(b"")))
    return tensor


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Take a protobuf message apart."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        value: int | memoryview
        if wire == VARINT:
            value, at = _varint(message, at)
        elif wire in (FIXED32, FIXED64, BYTES):
            length = 4 if wire == FIXED32 else 8
            if wire == BYTES:
                length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
            if at > end:
                raise GraphError("it ends too soon")
        else:
            raise GraphError("it is no ONNX file")
        yield number, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise GraphError("it ends too soon")
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise GraphError("it is no ONNX file")


def _varints(packed: memoryview) -> list[int]:
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return values


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise GraphError("it is no ONNX file")
    return value


def _text(value: int | memoryview) -> str:
    try:
        return bytes(_message(value)).decode()
    except UnicodeDecodeError:
        raise GraphError("it has a name that is no text") from None
