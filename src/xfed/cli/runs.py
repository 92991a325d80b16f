"""`xfed runs` and `xfed diff`: what was run, and in what two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from xfed.errors import InputError
from xfed.report.differences import Difference, differences
from xfed.report.tables import print_whole
from xfed.runs.finding import find_runs
from xfed.runs.reader import Run, open_run


def runs_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    return [
        click.Command(
            "runs",
            callback=_runs,
            params=[click.Argument(["folder"], type=Path, default=Path("runs"), metavar="[FOLDER]")],
            help="List the runs under a folder, the newest first.",
        ),
        click.Command(
            "diff",
            callback=_diff,
            params=[click.Argument([name], type=Path, metavar=name.upper()) for name in ("a", "b")],
            help="Say in which settings and results two runs differ.",
        ),
    ]


def _runs(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is no folder; runs go to 'runs' unless --out says otherwise")
    now = datetime.now(UTC)
    found = sorted(((_started(run), run) for run in find_runs([folder])), key=lambda each: each[0], reverse=True)
    if not found:
        raise InputError(f"there is no run under {str(folder)!r}")
    table = Table()
    for name in ("run", "method", "data", "rounds", "state", "accuracy (%)", "age"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("rounds", "accuracy (%)", "age") else "left")
    for started, run in found:
        table.add_row(str(run.path), *_cells(run), _age((now - started).total_seconds()))
    print_whole(table)


def _started(run: Run) -> datetime:
    return datetime.fromisoformat(run.environment()["started"])


def _cells(run: Run) -> Iterator[str]:
    e = run.experiment
    done = len(run.records())
    evaluations = run.evaluations()
    yield e.method
    yield f"{e.dataset}, {e.dealing.in_words()}, seed {e.seed}"
    yield f"{done} of {e.training.rounds}"
    yield "finished" if run.finished else "stopped or running"
    yield f"{100 * evaluations[-1].mean:.2f} ± {100 * evaluations[-1].std:.2f}" if evaluations else "–"


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
            table.add_row(row.name, _text(row.first), _text(row.second))
        console.print(table)


def _text(value: Any) -> str:
    return "–" if value is None else str(value)
