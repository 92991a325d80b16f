"""The settings of a run: as it was started, and as it was continued, which is recorded. Edited ones are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from xfed.errors import InputError
from xfed.runs.index import Index

NAMED = 3
"""How many edited settings a sentence names."""


def read_settings(path: Path, index: Index | None) -> dict[str, Any]:
    """Read a run's settings, and put what it was continued with in the place of what it was started with."""
    try:
        text = path.read_text(encoding="utf-8")
        if index is not None and text != index.settings:
            raise InputError(_edited(path, text, index.settings))
        values = yaml.safe_load(text)
        for change in () if index is None else index.changes:
            if change.setting != "plugin":
                values["training"][change.setting] = change.after
        if not isinstance(values["place"], dict):
            raise TypeError("its section 'place' is none")
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError) as error:
        told = " ".join(str(error).split())
        raise InputError(
            f"{str(path)!r} is damaged: {told}; 'xfed check {path.parent}' says what can be done"
        ) from None
    found: dict[str, Any] = values
    return found


def _edited(path: Path, now: str, before: str) -> str:
    """Say in what settings differ from those that the run was started with."""
    try:
        old, new = (dict(flat(yaml.safe_load(text))) for text in (before, now))
        changed = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
        told = [f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in changed[:NAMED]]
        told += [f"and {len(changed) - NAMED} more"] if len(changed) > NAMED else []
        what = ", ".join(told) or "its text"
    except (yaml.YAMLError, AttributeError):
        what = "it is no longer YAML"
    return (
        f"{str(path)!r} was edited after the run started ({what}), and the run's numbers are not of these settings; "
        f"'xfed check {path.parent} --settings' puts it back; then 'xfed resume {path.parent} --rounds N' is for more "
        "rounds, and a new run for other settings"
    )


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give nested settings by dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
