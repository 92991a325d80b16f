"""What a mishap is: how it comes about, the command that meets it, and the sentence that it must be told in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = "--clients 4 --rounds 1 --engine serial --convnet.width 4 --epochs 1"
Prepare = Callable[[Path], object]


@dataclass(frozen=True)
class Mishap:
    """A case: `prepare` is called in an empty folder, or in one with copies of the runs `run` and `cut`.

    `cut` is `run` as if it had been interrupted after its last round. `sentence` is a regular expression for all that
    is told (exit code 2: input; 1: the world); one that any other case's sentence matches too is too vague.
    """

    name: str
    command: str
    sentence: str
    prepare: Prepare | None = None
    code: int = 2
    runs: bool = False


def text(name: str, content: str | bytes) -> Prepare:
    """Write a file."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: _file(folder / name).write_bytes(data)


def values(name: str, content: Any) -> Prepare:
    """Write a JSON file."""
    return text(name, json.dumps(content))


def folder(name: str) -> Prepare:
    """Make a folder."""
    return lambda root: (root / name).mkdir(parents=True)


def cut(name: str, keep: float | bytes = 0.6) -> Prepare:
    """Cut a file short: to a share of its length, or before the place where some text first stands."""

    def prepare(root: Path) -> None:
        path = the(root, name)
        content = path.read_bytes()
        end = content.index(keep) if isinstance(keep, bytes) else int(keep * len(content))
        path.write_bytes(content[:end])

    return prepare


def flip(name: str, place: int = -5) -> Prepare:
    """Change one bit of a file."""

    def prepare(root: Path) -> None:
        path = the(root, name)
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(bytes(content))

    return prepare


def gone(name: str) -> Prepare:
    """Delete a file."""
    return lambda root: the(root, name).unlink()


def swapped(one: str, other: str) -> Prepare:
    """Let two files change places."""

    def prepare(root: Path) -> None:
        a, b = the(root, one), the(root, other)
        first, second = a.read_bytes(), b.read_bytes()
        a.write_bytes(second)
        b.write_bytes(first)

    return prepare


def edited(name: str, before: str, after: str) -> Prepare:
    """Change the text of a file."""

    def prepare(root: Path) -> None:
        path = the(root, name)
        content = path.read_text(encoding="utf-8")
        assert before in content, f"{name} has no {before!r}"
        path.write_text(content.replace(before, after, 1), encoding="utf-8")

    return prepare


def each(*steps: Prepare) -> Prepare:
    """Do several things, in order."""
    return lambda root: [step(root) for step in steps]


def the(root: Path, pattern: str) -> Path:
    """Find the one file that a name or a pattern means: the first of several."""
    found = sorted(root.glob(pattern))
    assert found, f"there is no {pattern}"
    return found[0]


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
