"""The only thing that crosses between server and client, on every engine, evaluation included."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import safetensors.torch
from torch import Tensor

NUMBER_BYTES = 8
Plain = int | float | bool | list[int]


class WireError(ValueError):
    """Bytes that are not what they should be, told in one phrase; nothing in them was executed."""


@dataclass(frozen=True)
class Message:
    """Named tensors and plain values.

    `nbytes` is what communication figures add up: the tensors' bytes, and 8 for every plain number.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors and plain numbers."""
        numbers = sum(len(value) if isinstance(value, list) else 1 for value in self.values.values())
        return sum(tensor.nbytes for tensor in self.tensors.values()) + NUMBER_BYTES * numbers

    def having(self, tensors: Mapping[str, Tensor] | None = None, **values: Plain) -> Message:
        """Give this message with more in it; equal names are replaced."""
        return Message({**self.tensors, **(tensors or {})}, {**self.values, **values})

    def with_message(self, other: Message) -> Message:
        """Give this message with all of another in it."""
        return self.having(other.tensors, **other.values)

    def to_bytes(self) -> bytes:
        """Encode; bits are kept."""
        tensors = list(self.tensors.values())
        return pack({"tensors": {name: n for n, name in enumerate(self.tensors)}, "values": dict(self.values)}, tensors)

    @classmethod
    def from_bytes(cls, data: bytes, limit: int | None = None) -> Message:
        """Decode what `to_bytes` gave; nothing in it is executed."""
        return cls.from_plain(*unpack(data, limit))

    @classmethod
    def from_plain(cls, plain: Any, tensors: Sequence[Tensor]) -> Message:
        """Put a message together from decoded pieces: its values, and which of the tensors it holds by what name."""
        try:
            named = {str(name): tensors[range(len(tensors))[number]] for name, number in plain["tensors"].items()}
            values = {str(name): value for name, value in plain["values"].items()}
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise WireError(f"a message that cannot be understood ({type(error).__name__})") from None
        for name, value in values.items():
            numbers = value if isinstance(value, list) else [value]
            if not all(isinstance(number, int | float) for number in numbers):
                raise WireError(f"a message whose value {name!r} is no number")
        return cls(named, values)


def pack(plain: Any, tensors: Sequence[Tensor]) -> bytes:
    """Encode plain values and tensors as bytes (safetensors, the values as JSON in its header); bits are kept."""
    numbered = {str(index): tensor.contiguous() for index, tensor in enumerate(tensors)}
    encoded: bytes = safetensors.torch.save(numbered, metadata={"plain": json.dumps(plain)})
    return encoded


def unpack(data: bytes, limit: int | None = None) -> tuple[Any, list[Tensor]]:
    """Decode what `pack` gave; more than `limit` bytes are refused before anything is read."""
    if limit is not None and len(data) > limit:
        raise WireError(f"{len(data):,} bytes, where {limit:,} are allowed")
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        plain = json.loads(header["__metadata__"]["plain"])
        tensors = safetensors.torch.load(data)
        return plain, [tensors[str(index)] for index in range(len(tensors))]
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"bytes that cannot be decoded ({type(error).__name__})") from None
