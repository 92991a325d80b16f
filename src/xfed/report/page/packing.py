"""Many small arrays in little space: one compressed block, and a list of what is where."""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {"uint8": "Uint8Array", "uint16": "Uint16Array", "uint32": "Uint32Array", "float32": "Float32Array"}
ALIGNMENT = 8


class Packing:
    """Collects arrays; equal ones are kept once."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._known: dict[bytes, dict[str, Any]] = {}

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Take an array in, and give what a page needs to find it."""
        content = np.ascontiguousarray(values)
        name = TYPES[content.dtype.name]
        digest = hashlib.sha256(name.encode() + content.tobytes()).digest()
        if digest not in self._known:
            self._block += b"\0" * (-len(self._block) % ALIGNMENT)
            self._known[digest] = {"type": name, "start": len(self._block), "length": int(content.size)}
            self._block += content.tobytes()
        return self._known[digest]

    def text(self) -> str:
        """Give the whole block, compressed, as text."""
        return base64.b64encode(gzip.compress(bytes(self._block), 9, mtime=0)).decode()
