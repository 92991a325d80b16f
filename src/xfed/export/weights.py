"""Where the graphs of a bundle find their numbers: shared ones in one file, a client's own put in at load time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

CLIENT = "client"
"""Location of a client's own tensors: no file has it, so a graph does not load without someone's."""

ALIGNMENT = 64
LARGEST_INLINE = 1024  # bytes of a constant that stays in the graph


@dataclass
class SharedWeights:
    """Writes tensors one after another into the file that all graphs refer to; equal content is stored once."""

    path: Path
    stream: BinaryIO
    end: int = 0
    places: dict[tuple[str, int], int] = field(default_factory=dict)

    def external(self, name: str, tensor: Tensor) -> TensorProto:
        """Store a tensor and refer to it."""
        array = tensor.detach().cpu().contiguous().numpy()
        return self._refer(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.tobytes())

    def constant(self, constant: TensorProto) -> TensorProto:
        """Leave a small constant in the graph; store a large one."""
        array = numpy_helper.to_array(constant)
        if array.nbytes <= LARGEST_INLINE:
            return constant
        return self._refer(constant.name, constant.data_type, array.shape, array.tobytes())

    def _refer(self, name: str, kind: int, shape: Iterable[int], content: bytes) -> TensorProto:
        key = (hashlib.sha256(content).hexdigest(), len(content))
        if key not in self.places:
            padding = -self.end % ALIGNMENT
            self.stream.write(bytes(padding) + content)
            self.places[key] = self.end + padding
            self.end += padding + len(content)
        place = {"location": self.path.name, "offset": str(self.places[key]), "length": str(len(content))}
        return _external(name, kind, shape, place)


def personal(name: str, tensor: Tensor) -> TensorProto:
    """Refer to a tensor that a client brings."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(str(tensor.dtype).removeprefix("torch.")))
    return _external(name, kind, tensor.shape, {"location": CLIENT})


def _external(name: str, kind: int, shape: Iterable[int], place: Mapping[str, str]) -> TensorProto:
    tensor = TensorProto(name=name, data_type=kind, dims=list(shape), data_location=TensorProto.EXTERNAL)
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def write_client(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a client's own tensors as .npz, which the runtime reads without ever executing anything."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: tensor.detach().to(torch.device("cpu")).contiguous().numpy() for name, tensor in tensors.items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]
