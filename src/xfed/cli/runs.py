"""`xfed runs` and `xfed diff`: what was run, and in what two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from xfed.cli.output import WIDE
from xfed.errors import InputError
from xfed.report.differences import Difference, differences
from xfed.report.terminal import show_table
from xfed.runs.finding import folders
from xfed.runs.lock import holder
from xfed.runs.reader import Run, open_run
from xfed.spelling import spelt

LEAST_NAME, LEAST_BESIDE = 24, 42
"""Characters that a run's path gets at least, and those that state, accuracy and method take beside it."""


def runs_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    return [
        click.Command(
            "runs",
            callback=_runs,
            params=[click.Argument(["folder"], type=Path, default=Path("runs"), metavar="[FOLDER]"), WIDE],
            help="List the runs under a folder, the newest first.",
        ),
        click.Command(
            "diff",
            callback=_diff,
            params=[click.Argument([name], type=Path, metavar=name.upper()) for name in ("a", "b")],
            help="Say in which settings and results two runs differ.",
        ),
    ]


def _runs(folder: Path, wide: bool) -> None:
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is no folder; runs go to 'runs' unless --out says otherwise")
    now = datetime.now(UTC)
    found: list[tuple[datetime, str, list[str]]] = []
    damaged: list[Path] = []
    for path in folders(folder):
        try:
            run = open_run(path)
            started = _started(run)
            found.append((started, str(path), list(_cells(run, _age((now - started).total_seconds())))))
        except InputError:
            damaged.append(path)
    if not found and not damaged:
        raise InputError(f"there is no run under {str(folder)!r}")
    header = ["run", "method", "state", "rounds", "accuracy (%)", "age", "data"]
    room = None if wide else max(LEAST_NAME, Console().width - LEAST_BESIDE)
    body = [[_shortened(name, room), *cells] for _, name, cells in sorted(found, reverse=True)]
    show_table(header, body, ranks=[0, 3, 1, 4, 2, 5, 6], texts=3, wide=wide)
    for path in damaged:
        Console().print(f"{path} is damaged: 'xfed check {path}' says how", highlight=False, soft_wrap=True)


def _shortened(name: str, room: int | None) -> str:
    """Leave the middle of a long path out: its end tells runs apart."""
    if room is None or len(name) <= room:
        return name
    start = (room - 1) // 3
    return f"{name[:start]}…{name[start + 1 - room :]}"


def _started(run: Run) -> datetime:
    return datetime.fromisoformat(run.environment()["started"])


def _cells(run: Run, age: str) -> Iterator[str]:
    e = run.experiment
    evaluations = run.evaluations()
    yield e.method
    yield "finished" if run.finished else "stopped" if holder(run.path) is None else "running"
    yield f"{len(run.records())} of {e.training.rounds}"
    yield f"{100 * evaluations[-1].mean:.2f} ± {100 * evaluations[-1].std:.2f}" if evaluations else "–"
    yield age
    yield f"{e.dataset}, {e.dealing.in_words()}, seed {e.seed}"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _diff(a: Path, b: Path) -> None:
    found: Mapping[str, Sequence[Difference]] = differences(open_run(a), open_run(b))
    console = Console()
    for kind, rows in found.items():
        if not rows:
            console.print(f"no difference in {kind}", highlight=False)
            continue
        table = Table(title=kind, title_justify="left")
        for name in ("", str(a), str(b)):
            table.add_column(name, overflow="fold")
        for row in rows:
            cells = (row.name, _text(row.first), _text(row.second))
            table.add_row(*(spelt(cell, console.encoding) for cell in cells))
        console.print(table)


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
