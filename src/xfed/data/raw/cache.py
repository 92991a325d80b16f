"""Decoded copies on disk: one folder per data set and raw files, opened by mapping it into memory.

`inputs.npy`, `labels.npy` (and `groups.npy`) are plain NumPy files. `meta.json` is written last, so a folder that
has it is whole. Pages of a mapped file are shared by all processes that read it, and count once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from xfed.data.card import Kind
from xfed.data.dataset import Dataset
from xfed.data.raw.containers import Container
from xfed.data.raw.locations import cache_root
from xfed.data.raw.progress import progress
from xfed.errors import InputError
from xfed.files import whole, write_text

FORMAT = 1
"""Part of every key: a change in how something is decoded raises it, and old copies are no longer used."""


@dataclass(frozen=True)
class Contents:
    """What a source decodes: inputs block by block, so that they need not fit into memory, and the rest at once.

    The first `train` samples are the published training part, where there is one.
    """

    shape: tuple[int, ...]
    blocks: Iterable[NDArray[Any]]
    labels: NDArray[Any]
    classes: tuple[str, ...]
    train: int | None = None
    dtype: str = "uint8"
    kind: Kind = "image"
    scale: float = 255.0
    mean: float = 0.5
    std: float = 0.5
    vocabulary: tuple[str, ...] | None = None
    groups: NDArray[Any] | None = None


class Origin(BaseModel):
    """What a copy was decoded from: which raw files, in which state, with which settings."""

    name: str
    location: str
    settings: dict[str, Any]
    files: int
    bytes: int
    signature: str

    @classmethod
    def of(cls, name: str, raw: Container, settings: dict[str, Any]) -> Origin:
        """Look at the raw files, without reading them."""
        entries = raw.signature()
        return cls(
            name=name,
            location=str(raw.path.resolve()),
            settings=settings,
            files=len(entries),
            bytes=sum(size for _, size, _ in entries),
            signature=hashlib.sha256(json.dumps(entries).encode()).hexdigest(),
        )

    def folder(self) -> Path:
        """Give the place of the decoded copy."""
        key = hashlib.sha256(f"{FORMAT}{self.model_dump_json()}".encode()).hexdigest()[:16]
        return cache_root() / "decoded" / f"{self.name}-{key}"


class Meta(BaseModel):
    """Everything about a decoded copy that is not an array."""

    origin: Origin
    samples: int
    train: int | None
    classes: tuple[str, ...]
    kind: Kind
    scale: float
    mean: float
    std: float
    vocabulary: tuple[str, ...] | None
    has_groups: bool
    sha256: str


def read_meta(folder: Path) -> Meta:
    """Read what is known of a decoded copy."""
    try:
        return Meta.model_validate_json((folder / "meta.json").read_bytes())
    except (OSError, ValidationError):
        raise InputError(f"decoded copy {str(folder)!r} is damaged; delete the folder") from None


def open_decoded(folder: Path) -> Dataset:
    """Map a decoded copy into memory."""
    meta = read_meta(folder)
    try:
        return _dataset(folder, meta).in_files(meta.sha256, partial(open_decoded, folder))
    except (OSError, ValueError, InputError):
        raise InputError(f"decoded copy {str(folder)!r} is damaged; delete the folder") from None


def write_decoded(origin: Origin, contents: Contents) -> Dataset:
    """Write a decoded copy and map it; copies of the same raw files in an earlier state are deleted."""
    folder = origin.folder()
    with _writable(folder):
        _write_inputs(folder / "inputs.npy", origin.name, contents)
        _write_array(folder / "labels.npy", contents.labels)
        if contents.groups is not None:
            _write_array(folder / "groups.npy", contents.groups)
        meta = Meta(
            origin=origin,
            samples=contents.shape[0],
            train=contents.train,
            classes=contents.classes,
            kind=contents.kind,
            scale=contents.scale,
            mean=contents.mean,
            std=contents.std,
            vocabulary=contents.vocabulary,
            has_groups=contents.groups is not None,
            sha256="",
        )
        meta = meta.model_copy(update={"sha256": _dataset(folder, meta).compute_checksum()})
        write_text(folder / "meta.json", meta.model_dump_json())
    _drop_outdated(origin)
    return open_decoded(folder)


def _dataset(folder: Path, meta: Meta) -> Dataset:
    return Dataset(
        name=meta.origin.name,
        inputs=_map(folder / "inputs.npy"),
        labels=_map(folder / "labels.npy"),
        classes=meta.classes,
        scale=meta.scale,
        mean=meta.mean,
        std=meta.std,
        kind=meta.kind,
        vocabulary=meta.vocabulary,
        groups=_map(folder / "groups.npy") if meta.has_groups else None,
    )


def _map(path: Path) -> torch.Tensor:
    """Map an array. Copy-on-write is what makes it a tensor without a warning; nobody writes, so nothing is copied."""
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def _write_inputs(path: Path, name: str, contents: Contents) -> None:
    row = 0
    with whole(path) as temporary, progress(f"decoding {name}", contents.shape[0]) as advance:
        inputs = np.lib.format.open_memmap(temporary, "w+", np.dtype(contents.dtype), contents.shape)
        for block in contents.blocks:
            inputs[row : row + len(block)] = block
            row += len(block)
            advance(len(block))
        inputs.flush()


def _write_array(path: Path, values: NDArray[Any]) -> None:
    with whole(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, values.astype(np.int64), allow_pickle=False)


def _drop_outdated(origin: Origin) -> None:
    for folder in (cache_root() / "decoded").glob(f"{origin.name}-*"):
        try:
            other = read_meta(folder).origin
        except InputError:
            continue
        same = (other.name, other.location, other.settings) == (origin.name, origin.location, origin.settings)
        if same and other.signature != origin.signature:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"decoded copy {str(folder)!r} cannot be written: {error.strerror}; "
            "XDG_CACHE_HOME can name a folder with more room"
        ) from None
