"""Continuing a run with something otherwise than it was started with; the run's index records what, and since when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xfed.components import unload_plugin
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.files import write_text
from xfed.runs.directory import RunDirectory
from xfed.runs.index import Change, Index
from xfed.runs.rewinding import reopen

AMENDABLE = ("rounds", "lr", "on_failure")
"""Settings of training that a run may be continued with otherwise, besides its plug-ins."""
NUMBERED = re.compile(r"(?P<number>\d+)(?:\.(?P<version>\d+))?-(?P<name>.+)")
"""Plug-in files of a run: a number, since two folders may hold files of one name, and how often it was replaced."""


def plain_name(name: str) -> str:
    """Give the name that a plug-in's author knows it by."""
    match = NUMBERED.fullmatch(name)
    return name if match is None else match["name"]


def stand_ins(directory: RunDirectory, given: Sequence[Path]) -> dict[str, Path]:
    """Find out which plug-in of the run each given file takes the place of: the one of its name. It is forgotten."""
    index = _index(directory)
    known = {plain_name(name): name for name in index.plugins}
    found = {}
    for path in given:
        if path.name not in known:
            raise InputError(
                f"plug-in {str(path)!r} takes no plug-in's place in run {str(directory.root)!r}; "
                f"its own: {', '.join(known) or 'none'}"
            )
        found[known[path.name]] = path
        unload_plugin((directory.plugins / known[path.name]).read_text(encoding="utf-8"))
    return found


def amend(
    directory: RunDirectory, before: Experiment, settings: Mapping[str, Any], plugins: Mapping[str, Path], round: int
) -> None:
    """Record what a run goes on with after a round, and take it back to one that goes on."""
    index = _index(directory)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    changes = [replace(change, round=min(change.round, round)) for change in index.changes]
    for name, value in settings.items():
        changes.append(Change(name, getattr(before.training, name), value, round, now))
    active, started = list(index.plugins), dict(index.started)
    for old, path in plugins.items():
        match = NUMBERED.fullmatch(old)
        assert match is not None, "stand_ins found it by this form"
        new = f"{match['number']}.{int(match['version'] or 1) + 1}-{match['name']}"
        write_text(directory.plugins / new, path.read_text(encoding="utf-8"))
        started |= directory.index.digests([directory.plugins / new])
        active[active.index(old)] = new
        changes.append(Change("plugin", old, new, round, now))
    reopen(directory, replace(index, changes=tuple(changes), plugins=tuple(active), started=started))


def _index(directory: RunDirectory) -> Index:
    index = directory.index.get()
    if index is None:
        raise InputError(f"run {str(directory.root)!r} has no index: a version of xfed wrote it that knew no changes")
    return index
