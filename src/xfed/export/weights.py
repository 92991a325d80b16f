"""Where the graphs of a bundle find their numbers: flat files beside them, one for all clients, one for each client.

Every ONNX tool opens such files: a tensor's place is a file name, an offset and a length (ONNX external data).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

ALIGNMENT = 64
LARGEST_INLINE = 1024  # bytes of a constant that stays in the graph

Array = NDArray[Any]


@dataclass
class FlatFile:
    """Tensors one after another in a file; equal content is stored once."""

    path: Path
    end: int = 0
    places: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")

    def external(self, name: str, array: Array) -> TensorProto:
        """Store a tensor and refer to it."""
        content = np.ascontiguousarray(array).tobytes()
        key = (hashlib.sha256(content).hexdigest(), len(content))
        if key not in self.places:
            padding = -self.end % ALIGNMENT
            with self.path.open("ab") as stream:
                stream.write(bytes(padding) + content)
            self.places[key] = self.end + padding
            self.end += padding + len(content)
        return refer(name, array, self.path.name, self.places[key])

    def constant(self, constant: TensorProto) -> TensorProto:
        """Leave a small constant in the graph; store a large one."""
        array = numpy_helper.to_array(constant)
        return constant if array.nbytes <= LARGEST_INLINE else self.external(constant.name, array)


@dataclass(frozen=True)
class Layout:
    """Where each of a client's own tensors lies in its file: the same for all clients."""

    places: Mapping[str, int]

    @classmethod
    def of(cls, tensors: Mapping[str, Array]) -> Layout:
        """Lay tensors out by name."""
        places, end = {}, 0
        for name in sorted(tensors):
            places[name] = end + -end % ALIGNMENT
            end = places[name] + tensors[name].nbytes
        return cls(places)

    def write(self, path: Path, tensors: Mapping[str, Array]) -> None:
        """Write a client's tensors."""
        with path.open("wb") as stream:
            for name, place in self.places.items():
                stream.write(bytes(place - stream.tell()) + np.ascontiguousarray(tensors[name]).tobytes())

    def refer(self, file: str, tensors: Mapping[str, Array]) -> dict[str, TensorProto]:
        """Refer to the tensors in a client's file."""
        return {name: refer(name, tensors[name], file, place) for name, place in self.places.items()}

    def describe(self, tensors: Mapping[str, Array]) -> list[dict[str, Any]]:
        """Say for the manifest what lies where."""
        return [
            {"name": name, "type": str(tensors[name].dtype), "shape": list(tensors[name].shape), "offset": place}
            for name, place in self.places.items()
        ]


def refer(name: str, array: Array, file: str, offset: int) -> TensorProto:
    """Refer to a tensor in a file beside the graph."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=list(array.shape), data_location=TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", str(offset)), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def arrays(tensors: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Array]:
    """Take tensors to numpy."""
    return {name: tensors[name].detach().cpu().contiguous().numpy() for name in names}
