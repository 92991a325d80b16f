"""Runs in folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from xfed.runs.reader import Run, open_run


def find_runs(paths: Sequence[Path]) -> Iterator[Run]:
    """Open runs: each path is one itself, or a folder with runs at any depth, in the order of their names."""
    for path in paths:
        if (path / "settings.yaml").is_file() or not path.is_dir():
            yield open_run(path)
            continue
        for settings in sorted(path.rglob("settings.yaml")):
            if (settings.parent / "environment.json").is_file():
                yield open_run(settings.parent)
