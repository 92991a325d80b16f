"""The user's own arrays: a NumPy `.npz` file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from xfed.components import BaseSettings
from xfed.data.dataset import dataset, refuse_not_finite
from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import Container
from xfed.data.raw.reasons import reason
from xfed.data.raw.source import DecodedSource
from xfed.errors import InputError
from xfed.memory import refuse_too_large
from xfed.units import counted

UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    AttributeError,
    TypeError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise of files that are not what they seem."""


@dataset("npz")
class Npz(DecodedSource):
    """Your arrays in one .npz file: x, y, and if you like client and classes.

    x: uint8 images (N × H × W, N × C × H × W, or N × H × W × C with 1 or 3 channels), scaled to −1 … 1; or floating
    point numbers of any such shape, taken as they are; or token ids (N × length, whole numbers, 0 pads).
    y: class numbers from 0. client: whose sample it is, for the natural partition. classes: their names.
    """

    class Settings(BaseSettings):
        path: Path = Field(None, validate_default=True, description=".npz file with arrays x and y")

        @field_validator("path", mode="before")
        @classmethod
        def _given(cls, path: Any) -> Any:
            if path is None:
                raise ValueError("give the .npz file with arrays x and y")
            return path

    settings: Settings

    def find(self) -> Container | None:
        """Find the file."""
        return Container(self.settings.path) if self.settings.path.is_file() else None

    def instructions(self) -> str:
        """Name the file that is not there."""
        return f"npz.path {str(self.settings.path)!r} is not a file"

    def decode(self, raw: Container) -> Contents:
        """Read and check the arrays."""
        where = repr(str(raw.path))
        arrays = _arrays(raw.path)
        for name in ("x", "y"):
            if name not in arrays:
                raise InputError(f"{where} has no array {name!r}; it has: {', '.join(arrays) or 'none'}")
        x, y = arrays["x"], arrays["y"]
        if x.ndim == 0:
            raise InputError(f"{where} has x that is a single number; allowed: one input for each sample")
        if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(x) or len(y) == 0:
            raise InputError(
                f"{where} has y of {y.dtype} and shape {y.shape}; allowed: one whole number for each of {len(x)} inputs"
            )
        if x.size == 0:
            raise InputError(f"{where} has x of shape {x.shape}, which holds no number; allowed: inputs with some")
        if "classes" not in arrays:
            _refuse_gaps(y, where)
        names = arrays.get("classes", np.arange(int(y.max()) + 1))
        if names.ndim != 1:
            raise InputError(
                f"{where} has classes of shape {names.shape}; allowed: a list of names, one for each class"
            )
        classes = tuple(map(str, names))
        if not 0 <= y.min() <= y.max() < len(classes):
            raise InputError(f"{where} has labels from {y.min()} to {y.max()}; allowed: 0 to {len(classes) - 1}")
        groups = None
        if "client" in arrays:
            if arrays["client"].shape != y.shape:
                raise InputError(f"{where} has client of shape {arrays['client'].shape}; allowed: {y.shape}, as y")
            if nameless := int(np.sum(arrays["client"] != arrays["client"])):
                raise InputError(
                    f"{where} has {counted(nameless, 'sample')} whose client is NaN; allowed: a name for each"
                )
            groups = np.unique(arrays["client"], return_inverse=True)[1]
        return _contents(x, where, labels=y, classes=classes, groups=groups)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as members:
            size = sum(member.file_size for member in members.infolist())
        refuse_too_large(f"{str(path)!r}", size, "give fewer samples")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        raise InputError(f"{str(path)!r} is not a whole .npz file of plain arrays: {reason(error)}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{str(path)!r} is not a whole .npz file of plain arrays: {name!r} is none")
    return arrays


def _refuse_gaps(y: NDArray[Any], where: str) -> None:
    """Refuse class numbers that leave some out: each would become a class that no sample has."""
    numbers = np.unique(y)
    if numbers[0] >= 0 and len(numbers) <= numbers[-1]:
        missing = int(np.argmax(numbers != np.arange(len(numbers))))
        raise InputError(
            f"{where} has {len(numbers)} different labels in y, from {numbers[0]:,} to {numbers[-1]:,}, but none is "
            f"{missing}; number them from 0 on, or give all names as an array classes"
        )


def _contents(x: NDArray[Any], where: str, **rest: Any) -> Contents:
    if x.dtype.kind in "iu" and x.dtype != np.uint8 and x.ndim == 2:
        if x.min() < 0 or x.max() > np.iinfo(np.int32).max:
            raise InputError(f"{where} has token ids from {x.min()} to {x.max()}; allowed: 0 and above")
        return Contents(shape=x.shape, blocks=[x], dtype="int32", kind="text", **rest)
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim == 4 and x.dtype == np.uint8:
        return Contents(shape=x.shape, blocks=[x], **rest)
    if x.ndim == 4 and x.dtype.kind == "f":
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        refuse_not_finite(x, f"{where} has x that")
        return Contents(shape=x.shape, blocks=[x], dtype="float32", scale=1.0, mean=0.0, std=1.0, **rest)
    raise InputError(
        f"{where} has x of {x.dtype} and shape {x.shape}; "
        "allowed: images (uint8 or floating point, N × H × W or N × C × H × W) or token ids (N × length, int32)"
    )
