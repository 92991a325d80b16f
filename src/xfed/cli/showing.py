"""`xfed show` and `xfed plot`: what runs came to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from xfed.cli.options import RUNS, out_option
from xfed.cli.output import WIDE, Output
from xfed.errors import InputError
from xfed.kernels.choice import Kernels
from xfed.report.figures import SUFFIXES, draw_accuracy
from xfed.report.rows import by_task, collect
from xfed.report.tables import show
from xfed.runs.directory import FIGURE
from xfed.runs.finding import find_runs
from xfed.runs.reader import Run
from xfed.units import counted


def showing_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    kinds = ", ".join(suffix.removeprefix(".") for suffix in SUFFIXES)
    return [
        click.Command(
            "show",
            callback=_show,
            params=[RUNS, WIDE],
            help="Summarise a run; of several, or of folders of runs, make one table, seeds averaged.",
        ),
        click.Command(
            "plot",
            callback=_plot,
            params=[
                RUNS,
                out_option(f"figure to write ({kinds}); of one run alone: {FIGURE} in its folder", metavar="file"),
            ],
            help="Draw accuracy per exit and over rounds, of one run or of several; seeds give a band.",
        ),
    ]


def _found(paths: Sequence[Path]) -> list[Run]:
    runs = list(find_runs(paths))
    if not runs:
        raise InputError(f"there is no run under {', '.join(repr(str(path)) for path in paths)}")
    return runs


def _show(paths: Sequence[Path], **_: Any) -> None:
    runs = _found(paths)
    output = Output.wanted()
    if len(runs) == 1:
        show_run(runs[0], output)
        return
    evaluated = [run for run in runs if run.evaluations() and run.records()]
    for group in by_task(evaluated):
        show(collect(group), group, output.wide)
    for run in runs:
        if run not in evaluated:
            output.say(f"{run.path}: no evaluation with a checkpoint yet")


def _plot(paths: Sequence[Path], out: Path | None) -> None:
    runs = _found(paths)
    if out is None and len(runs) > 1:
        raise InputError(f"a figure of {len(runs)} runs needs --out, the file to write")
    path = out or runs[0].path / FIGURE
    draw_accuracy(runs, path)
    Output.wanted().say(f"figure: {path}")


def show_run(run: Run, output: Output) -> None:
    """Print a run; all of it is read before anything is said, so that of a damaged one only that is said."""
    if output.quiet:
        return
    e, done = run.experiment, len(run.records())
    evaluated = bool(run.evaluations() and done)
    rows = collect([run]) if evaluated else []
    macs, kernels = run.exit_macs, Kernels.of_note(run.environment()["kernels"])
    state = "finished" if run.finished else f"after round {done}; {run.going_on()}"
    output.say(f"{run.path}: {e.method} on {e.dataset}, {counted(e.training.rounds, 'round')}, seed {e.seed}, {state}")
    for change in run.changes():
        output.say(f"continued otherwise: {change}")
    if not evaluated:
        output.say("no evaluation with a checkpoint yet")
        return
    show(rows, [run], output.wide)
    output.say("MACs per input, leaving at exit: " + ", ".join(f"{j}: {count:,}" for j, count in enumerate(macs, 1)))
    output.say(f"kernels: {kernels.sentence()}")
