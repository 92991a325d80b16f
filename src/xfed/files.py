"""Files that are either whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; it takes the place of `path` only when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors (safetensors) whole."""
    with whole(path) as temporary:
        safetensors.torch.save_file({name: t.contiguous() for name, t in tensors.items()}, temporary, metadata)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors; safetensors checks the header and never executes anything."""
    tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    return tensors


def sha256(path: Path) -> str:
    """Content checksum of one file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
