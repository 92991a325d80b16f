"""Where raw data is looked for, and where decoded copies are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_FIRST: ContextVar[Path | None] = ContextVar("first folder to look into", default=None)


@contextmanager
def looking_into(folder: Path | None) -> Iterator[None]:
    """Look into a folder before all others, as long as the block runs."""
    token = _FIRST.set(folder or _FIRST.get())
    try:
        yield
    finally:
        _FIRST.reset(token)


def cache_root() -> Path:
    """Folder for downloads and decoded copies: `$XDG_CACHE_HOME/xfed`, else `~/.cache/xfed`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "xfed"


def data_roots() -> tuple[Path, ...]:
    """Folders to search for raw data, in order: the one given, those of `XFED_DATA` (colons between), then the cache.

    The first one is where a download goes.
    """
    first = _FIRST.get()
    given = [str(first)] if first else []
    given += os.environ.get("XFED_DATA", "").split(os.pathsep)
    return (*(Path(folder).expanduser() for folder in given if folder), cache_root())
