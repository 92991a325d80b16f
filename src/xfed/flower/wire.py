"""Words as Flower records: values as text, every tensor as an array of its own, so that a shared one is stored once.

Arrays hold raw bytes, whose number must be what type and shape say: nothing is allocated because a message claims it.
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


def to_records(federation: str, words: Sequence[Word]) -> RecordDict:
    """Encode words of a federation."""
    plain, tensors = frame(words)
    arrays = {}
    for number, tensor in enumerate(tensors):
        array = tensor.contiguous().numpy()
        arrays[str(number)] = Array(str(array.dtype), tuple(array.shape), RAW, array.tobytes())
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
    arrays = records.array_records.get("tensors", ArrayRecord({}))
    size = sum(len(array.data) for array in arrays.values())
    if limit is not None and size > limit:
        raise WireError(f"{size:,} bytes, where {limit:,} are allowed")
    ordered = [arrays.get(str(number)) for number in range(len(arrays))]
    return unframe(plain, [_tensor(array) for array in ordered])


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
