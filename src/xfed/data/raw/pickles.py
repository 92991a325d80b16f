"""Reading pickles from outside without ever running what is in them.

The unpickler knows a handful of names, and each stands for a harmless object of ours, not for NumPy's own: NumPy
trusts the state it is given, so a forged dtype could make it take bytes for pointers. What can come out are
arrays of plain numbers, lists, tuples, dicts, strings, bytes and numbers.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed.data.raw.reasons import reason
from xfed.errors import InputError

PLAIN_TYPE = re.compile(r"[<>|=]?(?:[iu][1248]|f[248]|b1)")


class _Callable:
    """Something a pickle may name and call, and nothing else: its attributes cannot be set."""

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it tries to change what it may only call")


class _Type(_Callable):
    """Stands for `numpy.dtype` while unpickling: the code of a plain number type and its byte order."""

    def __init__(self, code: str = "") -> None:
        self.code = code

    def __call__(self, code: str | bytes, *_: object) -> _Type:
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if not PLAIN_TYPE.fullmatch(code):
            raise pickle.UnpicklingError(f"it holds an array of {code!r}")
        return _Type(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        self.code = order + self.code.lstrip("<>|=") if self.code and order in ("<", ">") else self.code


class _Array:
    """Stands for an array while unpickling; `value` is the real one."""

    value: NDArray[Any]

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        self.value = _from_bytes(content, kind, shape, "F" if fortran else "C")


def _from_bytes(content: Any, kind: Any, shape: Any, order: str) -> NDArray[Any]:
    if not isinstance(content, bytes | bytearray) or not isinstance(kind, _Type):
        raise pickle.UnpicklingError("it holds an array that is not plain numbers")
    flat = np.frombuffer(content, kind.code)
    if flat.size != math.prod(shape) or order not in ("C", "F"):
        raise pickle.UnpicklingError(f"it holds an array of shape {shape} with {flat.size} numbers")
    return flat.reshape(shape, order="F" if order == "F" else "C")


class _Reconstruct(_Callable):
    def __call__(self, *_: object) -> _Array:
        return _Array()


class _FromBuffer(_Callable):
    def __call__(self, content: Any, kind: Any, shape: Any, order: Any) -> _Array:
        array = _Array()
        array.value = _from_bytes(content, kind, shape, order)
        return array


class _Encode(_Callable):
    def __call__(self, text: str, encoding: str) -> bytes:
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
        return text.encode("latin1")


KNOWN = {
    "numpy.core.multiarray._reconstruct": _Reconstruct(),
    "numpy._core.multiarray._reconstruct": _Reconstruct(),
    "numpy.core.numeric._frombuffer": _FromBuffer(),
    "numpy._core.numeric._frombuffer": _FromBuffer(),
    "numpy.ndarray": _Callable(),
    "numpy.dtype": _Type(),
    "_codecs.encode": _Encode(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = KNOWN.get(f"{module}.{name}")
        if known is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return known


def read_pickle(content: bytes, where: str) -> dict[str, Any]:
    """Read a pickled dict with string keys; Python 2 strings among the values stay bytes."""
    try:
        _refuse_memo_bomb(content)
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError("it holds no dict")
        return {_text(key): item.value if isinstance(item, _Array) else item for key, item in value.items()}
    except Exception as error:  # a malformed pickle can raise nearly anything
        raise InputError(
            f"pickle {where!r} cannot be used: {reason(error)}; "
            "allowed: a dict of arrays of numbers, lists, dicts and strings"
        ) from None


def _refuse_memo_bomb(content: bytes) -> None:
    """Refuse a note far beyond the last one: the unpickler would make room for all notes in between."""
    for code, argument, _ in pickletools.genops(content):
        if code.name.endswith("PUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError(f"it notes something as number {argument}")


def _text(key: Any) -> str:
    if not isinstance(key, str | bytes):
        raise pickle.UnpicklingError("it holds a dict whose keys are not all strings")
    return key.decode("latin1") if isinstance(key, bytes) else key
