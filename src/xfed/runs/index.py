"""The index of a run: what every file held when it was written, and what the run was continued with otherwise.

It is written when a run starts, for what is true from then on, and again as the last thing before a run counts as
finished, for everything. A file is checked against it when it is read, never to list runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from xfed.errors import InputError
from xfed.files import sha256, write_json

NAME, VERSION = "index.json", 1


@dataclass(frozen=True)
class Digest:
    """What identifies the content of a file."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Digest:
        """Read a file for its digest."""
        return cls(path.stat().st_size, sha256(path))

    @classmethod
    def of_text(cls, text: str) -> Digest:
        """Give the digest of a text file that is yet to be written."""
        content = text.encode()
        return cls(len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Change:
    """A setting that a run was continued with otherwise, from the round after `round` on."""

    setting: str
    before: Any
    after: Any
    round: int
    when: str

    def __str__(self) -> str:
        return f"{self.setting} {self.before} → {self.after} after round {self.round}"


@dataclass(frozen=True)
class Index:
    """Digests by relative path, the settings as they were at the start, and what was changed since."""

    settings: str
    started: Mapping[str, Digest]
    plugins: tuple[str, ...] = ()
    """Names of the plug-in files in use; replaced ones lie beside them."""
    changes: tuple[Change, ...] = ()
    finished: Mapping[str, Digest] | None = None
    """What there is at the end, besides what was there from the start."""

    def to_json(self) -> dict[str, Any]:
        """Give plain values, with a digest of them all."""
        plain = {"index": VERSION, **asdict(self)}
        return {**plain, "sha256": _digest(plain)}

    @classmethod
    def from_json(cls, values: Any) -> Index:
        """Check and take plain values."""
        if not isinstance(values, dict) or values.pop("sha256", None) != _digest(values):
            raise ValueError("it is not what was written")
        if values.pop("index", None) != VERSION:
            raise ValueError("it is of another version of xfed")
        index: Index = TypeAdapter(cls).validate_python(values)
        return index


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass
class Indexed:
    """A folder with an index: reads and writes that, and holds files against it."""

    root: Path
    _read: tuple[tuple[int, int], Index] | None = field(default=None, init=False)
    _checked: dict[Path, tuple[int, int]] = field(default_factory=dict, init=False)

    @property
    def file(self) -> Path:
        """The index itself."""
        return self.root / NAME

    def get(self) -> Index | None:
        """Give the index as it is on disk; nothing for a run of a version that wrote none."""
        try:
            state = _state(self.file)
        except FileNotFoundError:
            return None
        if self._read is None or self._read[0] != state:
            try:
                self._read = state, Index.from_json(json.loads(self.file.read_bytes()))
            except (ValueError, RecursionError, ValidationError) as error:
                reason = "it is not what was written" if isinstance(error, ValidationError) else str(error)
                raise InputError(f"{str(self.file)!r} is damaged: {reason}; {_advice(self.root)}") from None
        return self._read[1]

    def write(self, index: Index) -> None:
        """Put an index in the place of the one before."""
        write_json(self.file, index.to_json())

    def forget(self, path: Path) -> None:
        """Let a file change that was there from the start; a finished run has it in its index again."""
        index = self.get()
        if index is not None:
            name = self.name(path)
            self.write(replace(index, started={k: v for k, v in index.started.items() if k != name}))

    def digests(self, paths: Iterable[Path]) -> dict[str, Digest]:
        """Read files for their digests."""
        return {self.name(path): Digest.of(path) for path in paths}

    def check(self, path: Path, finished: bool) -> None:
        """Make sure that a file is what was written; of a run that is not finished, what it started with."""
        problem = self.problem(path, finished)
        if problem is not None:
            raise InputError(f"{str(path)!r} {problem}; {_advice(self.root)}")

    def problem(self, path: Path, finished: bool) -> str | None:
        """Say what is wrong with a file, going on where its name stops; nothing where it is as written."""
        index = self.get()
        if index is None:
            return None
        name = self.name(path)
        at_the_end = (index.finished or {}) if finished else {}
        expected = index.started.get(name) or at_the_end.get(name)
        if expected is None:
            unknown = finished and index.finished is not None and path.is_file()
            return "was not written by this run" if unknown else None
        try:
            state = _state(path)
        except FileNotFoundError:
            return "is missing"
        if self._checked.get(path) == state:
            return None
        if state[1] != expected.bytes:
            return f"is damaged: it has {state[1]:,} bytes, and {expected.bytes:,} were written"
        if sha256(path) != expected.sha256:
            return "is damaged or was changed: its content is not what was written"
        self._checked[path] = state
        return None

    def name(self, path: Path) -> str:
        """Give the name that a file has in the index."""
        return path.relative_to(self.root).as_posix()


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _advice(root: Path) -> str:
    return f"'xfed check {root}' says what can be done"
