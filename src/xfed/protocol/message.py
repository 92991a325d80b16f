"""The only thing that crosses between server and client, on every engine, evaluation included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import safetensors.torch
from torch import Tensor

NUMBER_BYTES = 8
Plain = int | float | bool | list[int]


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

    def to_bytes(self) -> bytes:
        """Encode (safetensors, the values in its header); bits are kept."""
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        encoded: bytes = safetensors.torch.save(tensors, metadata={"values": json.dumps(dict(self.values))})
        return encoded

    @classmethod
    def from_bytes(cls, data: bytes) -> Message:
        """Decode what `to_bytes` gave; nothing in it is executed."""
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        values: dict[str, Any] = json.loads(header["__metadata__"]["values"])
        return cls(safetensors.torch.load(data), values)
