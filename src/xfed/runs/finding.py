"""Runs in folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from xfed.runs.reader import Run, open_run


def find_runs(paths: Sequence[Path]) -> Iterator[Run]:
    """Open runs: each path is one itself, or a folder with runs at any depth, in the order of their names.

    Plain files are passed over: a shell's `folder/*` names tables and figures too.
    """
    return (open_run(folder) for path in paths if not path.is_file() for folder in folders(path))


def folders(path: Path) -> Iterator[Path]:
    """Find the folders of runs below a path, or the path itself where it is one or there is nothing to look into."""
    if any((path / name).is_file() for name in ("settings.yaml", "index.json")) or not path.is_dir():
        yield path
        return
    for settings in sorted(path.rglob("settings.yaml")):
        if (settings.parent / "environment.json").is_file():
            yield settings.parent
