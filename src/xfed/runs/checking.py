"""A run directory explained: complete, interrupted or damaged; in which file, and what can be recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xfed.errors import InputError
from xfed.files import write_text
from xfed.runs.checkpoint import Checkpoint
from xfed.runs.directory import RunDirectory
from xfed.runs.lock import holder, in_words
from xfed.runs.reader import open_run
from xfed.runs.store import ClientStore


@dataclass(frozen=True)
class Problem:
    """Something wrong with a run, and what can be done about it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Health:
    """What a run directory is, in words, and what is wrong with it; where that is nothing, `verdict` says so."""

    state: str
    files: int
    bytes: int
    problems: tuple[Problem, ...]
    verdict: str
    foreign: tuple[Path, ...]
    """Files that the run did not write; they do it no harm."""


def check(path: Path) -> Health:
    """Read all of a run and compare it with its index; a folder that is no run is bad input."""
    directory = RunDirectory(path)
    if not directory.index.file.is_file():
        RunDirectory.open(path)
    sizes = [file.stat().st_size for file in directory.written()]
    working = holder(path)
    if working is not None:
        state = f"being worked on by {in_words(working)}"
        return Health(state, len(sizes), sum(sizes), (), "what is being worked on is not examined", ())
    state, examination = _state(directory), _Examination(directory)
    problems = tuple(examination.problems())
    verdict = "all that was written is there and as it was written"
    if not directory.finished:
        verdict += f"; 'xfed resume {path}' continues it"
    return Health(state, len(sizes), sum(sizes), problems, verdict, tuple(examination.foreign))


def put_settings_back(path: Path) -> None:
    """Write the settings that a run was started with, as its index has them, in the place of edited or lost ones."""
    directory = RunDirectory(path)
    with directory.alone():
        index = directory.index.get()
        if index is None:
            raise InputError(f"{str(directory.index.file)!r} is missing: nothing says what the settings were")
        write_text(directory.settings_file, index.settings)


def _state(directory: RunDirectory) -> str:
    """Say how far the run came, as far as that can still be read."""
    try:
        run = open_run(directory.root)
    except (InputError, OSError):
        return "a run whose settings cannot be used"
    e = run.experiment
    what = f"{e.method} on {e.dataset}, seed {e.seed}"
    changes = "".join(f"; continued on {change.when[:10]} with {change}" for change in run.changes())
    if directory.finished:
        return f"{what}: finished after {e.training.rounds} rounds{changes}"
    rounds = directory.checkpoints.rounds()
    if not rounds:
        return f"{what}: interrupted before the first of {e.training.rounds} rounds was saved{changes}"
    return f"{what}: interrupted after round {rounds[-1]} of {e.training.rounds}{changes}"


class _Examination:
    """Looks at one run, file by file."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.foreign: list[Path] = []

    def problems(self) -> Iterator[Problem]:
        """Name everything that is wrong; what cannot be read is not also held against its digest."""
        directory = self.directory
        try:
            index = directory.index.get()
            if index is None and _problem(directory.environment) is None and directory.environment().get("indexed"):
                raise InputError(f"{str(directory.index.file)!r} is missing")
        except InputError as error:
            yield Problem(_plain(error), f"what it vouched for cannot be checked; {self._anew()}")
            return
        wrong: list[Path] = []
        if index is not None:
            listed = {**index.started, **((index.finished or {}) if directory.finished else {})}
            for path in sorted({*(directory.root / name for name in listed), *directory.written()}):
                problem = directory.index.problem(path, directory.finished)
                if problem is not None and directory.index.name(path) not in listed:
                    self.foreign.append(path)
                elif problem is not None:
                    wrong.append(path)
                    edited = _problem(directory.settings) if path == directory.settings_file and path.exists() else None
                    yield Problem(edited or f"{str(path)!r} {problem}", self._remedy(path))
        if not wrong:
            yield from self._unreadable()
            if not directory.finished:
                yield from self._broken_checkpoints()

    def _unreadable(self) -> Iterator[Problem]:
        """Open what has no digest yet, or never had one."""
        directory = self.directory
        attempts: dict[Path, Callable[[], Any]] = {
            directory.settings_file: lambda: open_run(directory.root),
            directory.environment_file: directory.environment,
            directory.card_file: directory.card,
            directory.initial_file: directory.initial,
            directory.rounds_file: directory.rounds,
            directory.metrics: directory.evaluations,
        }
        for path, attempt in attempts.items():
            problem = _problem(attempt)
            if problem is not None:
                yield Problem(problem, self._remedy(path))

    def _broken_checkpoints(self) -> Iterator[Problem]:
        """Find out which checkpoints are whole, with the states that they name."""
        found = {round: self._broken(round) for round in self.directory.checkpoints.rounds()}
        whole = [round for round, problem in found.items() if problem is None]
        for problem in filter(None, found.values()):
            if whole:
                again = f"'xfed resume {self.directory.root} --round {whole[-1]}'"
                yield Problem(problem.partition("; --round")[0], f"{again} goes on after round {whole[-1]}")
            else:
                yield Problem(problem, f"no checkpoint is whole; {self._anew()}")

    def _broken(self, round: int) -> str | None:
        """Say what is wrong with a checkpoint or with the states that it names."""
        return _problem(lambda: self._read_states(self.directory.checkpoints.read(round)))

    def _read_states(self, checkpoint: Checkpoint) -> None:
        """Read the states that a checkpoint names, where they lie here and not on devices."""
        directory = self.directory
        for root, versions in (
            (directory.client_states, checkpoint.client_versions),
            (directory.server_states, checkpoint.kept_versions),
        ):
            store = ClientStore(root, versions)
            for client, version in versions.items() if root.is_dir() else ():
                store.read(client, version)

    def _remedy(self, path: Path) -> str:
        """Say what can be done about one file of the run."""
        directory, root = self.directory, self.directory.root
        kind = path.relative_to(root).parts[0]
        if path == directory.settings_file:
            return f"'xfed check {root} --settings' puts the settings back as they were"
        if kind == directory.plugins.name:
            return f"put the file back, or go on with another: 'xfed resume {root} --plugin FILE'"
        if kind in ("checkpoints", "state"):
            return f"results do not need it, only going on does; {self._anew()}"
        rounds = directory.checkpoints.rounds()
        of_the_end = kind == directory.models.name or (rounds and f"-{rounds[-1]:06d}." in path.name)
        if directory.finished and of_the_end and len(rounds) > 1 and self._broken(rounds[-2]) is None:
            return f"'xfed resume {root} --round {rounds[-2]}' computes the last round once more, and it with that"
        return self._anew()

    def _anew(self) -> str:
        """Say how to compute the run once more, from what it was started with."""
        directory = self.directory
        changes = () if _problem(directory.changes) else directory.changes()
        first = sorted(path for path in directory.plugins.glob("*.py") if "." not in path.stem)
        again = " ".join([f"xfed run {directory.settings_file} --out NEW", *(f"--plugin {path}" for path in first)])
        said = f"the same settings give the same bits: '{again}' computes everything again"
        if changes:
            said += f", if it is continued alike ({', '.join(map(str, changes))})"
        return said


def _problem(attempt: Callable[[], Any]) -> str | None:
    """Try to read something; give what is wrong with it."""
    try:
        attempt()
    except (InputError, OSError, KeyError, TypeError, ValueError) as error:
        return _plain(error)
    return None


def _plain(error: Exception) -> str:
    """Give an error's sentence without the pointer to the very command that is answering."""
    if not isinstance(error, InputError):
        return f"{type(error).__name__}: {error}"
    return str(error).partition("; 'xfed check ")[0]
