"""Where raw data is looked for, and where decoded copies are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Folder for downloads and decoded copies: `$XDG_CACHE_HOME/xfed`, else `~/.cache/xfed`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "xfed"


def data_roots() -> tuple[Path, ...]:
    """Folders to search for raw data, in order: those of `XFED_DATA` (colons between them), then the cache.

    The first one is where a download goes.
    """
    given = os.environ.get("XFED_DATA", "").split(os.pathsep)
    return (*(Path(folder).expanduser() for folder in given if folder), cache_root())
