"""Words as Flower records: values as text, large tensors as arrays of their own, so that a shared one is stored once.

Flower moves each array as two objects with names of their own, which for a bias costs more than its numbers: small
tensors travel side by side in one array. Arrays hold raw bytes, whose number must be what type and shape say: nothing
is allocated because a message claims it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from xfed.protocol.message import WireError
from xfed.protocol.words import Word, frame, unframe

RAW = "xfed.raw"
TYPES = {"float32": torch.float32, "float16": torch.float16, "int64": torch.int64, "int32": torch.int32}
TYPES |= {"uint8": torch.uint8, "bool": torch.bool, "float64": torch.float64}
PLAIN_LIMIT = 64 * 2**20
SMALL = "small"
SMALL_BYTES = 4096
"""Up to this size a tensor shares an array with others."""


def to_records(federation: str, words: Sequence[Word]) -> RecordDict:
    """Encode words of a federation."""
    plain, tensors = frame(words)
    arrays: dict[str, Array] = {}
    small: dict[str, Array] = {}
    for number, tensor in enumerate(tensors):
        array = tensor.contiguous().numpy()
        few = array.nbytes <= SMALL_BYTES
        (small if few else arrays)[str(number)] = Array(str(array.dtype), tuple(array.shape), RAW, array.tobytes())
    if small:
        together = b"".join(array.data for array in small.values())
        arrays[SMALL] = Array("uint8", (len(together),), RAW, together)
    plain[SMALL] = {number: [array.dtype, list(array.shape)] for number, array in small.items()}
    text = ConfigRecord({"federation": federation, "words": json.dumps(plain)})
    return RecordDict({"xfed": text, "tensors": ArrayRecord(arrays)})


def from_records(records: RecordDict, federation: str, limit: int | None = None) -> list[Word]:
    """Decode words; those of another federation, or with more than `limit` bytes of tensors, are refused."""
    said = values_of(records, federation)
    text = said.get("words")
    if not isinstance(text, str) or len(text) > PLAIN_LIMIT:
        raise WireError("a message without words")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError("words that are no JSON") from None
    arrays = dict(records.array_records.get("tensors", ArrayRecord({})))
    size = sum(len(array.data) for array in arrays.values())
    if limit is not None and size > limit:
        raise WireError(f"{size:,} bytes, where {limit:,} are allowed")
    arrays |= _taken_apart(plain.get(SMALL) if isinstance(plain, dict) else None, arrays.pop(SMALL, None))
    ordered = [arrays.get(str(number)) for number in range(len(arrays))]
    return unframe(plain, [_tensor(array) for array in ordered])


def _taken_apart(described: Any, together: Array | None) -> dict[str, Array]:
    """Give each of the small tensors an array of its own again."""
    apart: dict[str, Array] = {}
    data, start = (b"" if together is None else together.data), 0
    try:
        for number, (dtype, shape) in (described or {}).items():
            end = start + math.prod(shape) * TYPES[dtype].itemsize
            apart[number] = Array(dtype, tuple(shape), RAW, data[start:end])
            start = end
    except (AttributeError, KeyError, TypeError, ValueError):
        raise WireError("small tensors that are not described") from None
    if start != len(data):
        raise WireError(f"small tensors of {start:,} bytes with {len(data):,} bytes")
    return apart


def values_of(records: RecordDict, federation: str) -> dict[str, Any]:
    """Give the plain values of a message, and make sure that it belongs to a federation."""
    said = dict(records.config_records.get("xfed", ConfigRecord({})))
    if said.get("federation") != federation:
        raise WireError(f"a message of federation {said.get('federation')!r}; this one is {federation!r}")
    return said


def _tensor(array: Array | None) -> torch.Tensor:
    if array is None or array.stype != RAW or array.dtype not in TYPES:
        raise WireError("an array of an unknown kind")
    shape = tuple(array.shape)
    if any(n < 0 for n in shape) or math.prod(shape) * TYPES[array.dtype].itemsize != len(array.data):
        raise WireError(f"an array of shape {shape} and {array.dtype} with {len(array.data):,} bytes")
    return torch.from_numpy(np.frombuffer(bytearray(array.data), dtype=array.dtype).reshape(shape))
