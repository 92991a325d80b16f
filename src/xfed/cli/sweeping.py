"""`xfed sweep`: a user's own grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from xfed.cli.options import (
    FILE,
    REUSE,
    SEEDS,
    SET,
    PanelCommand,
    chosen_components,
    experiment_options,
    gather,
    glance,
    methods_option,
    out_option,
    parse_methods,
    parse_seeds,
    read_file,
)
from xfed.cli.output import OF_TRAINING, Output, number_for
from xfed.cli.planning import PLAN, carry_out_told, tell_plan
from xfed.comparison import Reuse, plan_runs
from xfed.components import load_plugins
from xfed.report.rows import by_task
from xfed.report.sheet import Cell, Number, Sheet, accuracy
from xfed.report.tables import settings_in_words
from xfed.runs.reader import Run
from xfed.sweep import Point, plan_sweep, read_grid

NOTES = (
    "Accuracy of the last evaluation, on each client's own test samples: mean ± std over clients; with several seeds, "
    "means of both, and the std over seeds of the mean beside them."
)
HELD_OUT = (
    " Held out: the same on calibration samples. ● is the best of its method by that, among those with the same data, "
    "dealt out alike: settings are to be chosen by it, since test samples judge the choice."
)


def sweeping_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command; --help shows the settings of the components named in `arguments`."""
    load_plugins(glance(arguments, "--plugin"))
    chosen = [name for names in chosen_components(arguments).values() for name in names]
    return [
        PanelCommand(
            "sweep",
            callback=_sweep,
            params=[
                FILE,
                methods_option("xfed"),
                click.Option(
                    ["--vary", "lines"],
                    multiple=True,
                    metavar="key=a,b,c",
                    help="values of a setting; several make a grid; a method's own (xfed.mu) vary for it alone",
                ),
                SEEDS,
                REUSE,
                out_option("runs and tables; earlier results stay", "runs/sweep"),
                PLAN,
                SET,
                *OF_TRAINING,
                *experiment_options(("method", "out"), chosen),
            ],
            help="Run a grid of methods, settings and seeds on alike partitions, or reuse runs; print one table.",
        )
    ]


def _sweep(
    settings_file: Path | None,
    names: str,
    lines: Sequence[str],
    seeds: str | None,
    reuse: Reuse,
    out: Path,
    only_plan: bool,
    assignments: Sequence[str],
    **_: Any,
) -> None:
    output = Output.wanted()
    values = gather(read_file(settings_file), assignments)
    seed_numbers = parse_seeds(seeds or str(values.get("seed", 1)))
    points = plan_sweep(values, parse_methods(names), read_grid(lines), seed_numbers)
    planned = plan_runs([each for point in points for each in point.experiments], out, reuse)
    if only_plan:
        tell_plan(planned, output)
        return
    runs = iter(carry_out_told(planned, output))
    sheet = table([(point, [next(runs) for _ in point.experiments]) for point in points])
    number = number_for(lambda suffix: {out / f"sweep{suffix}.csv": sheet.comma_separated()})
    written = sheet.write(out / f"sweep{number}")
    if not output.quiet:
        sheet.show(output.wide)
    output.say("written: " + ", ".join(map(str, written)))


def table(found: Sequence[tuple[Point, Sequence[Run]]]) -> Sheet:
    """Lay the grid out, a row per point."""
    keys = list(dict.fromkeys(key for point, _ in found for key in point.varied))
    most = max(len(runs[0].exit_macs) for _, runs in found)
    tasks = by_task([runs[0] for _, runs in found])
    held_out = {point: _held_out(runs) for point, runs in found}
    aside = any(value is not None for value in held_out.values())
    rows: list[list[Cell]] = []
    for point, runs in found:
        exits = [accuracy(runs, j) for j in range(len(runs[0].exit_macs))]
        settings = [str(point.varied[key]) if key in point.varied else "–" for key in keys]
        padding: list[Cell] = [None] * (most - len(exits))
        own = held_out[point]
        alike = {run.path for run in next(group for group in tasks if runs[0] in group)}
        rivals = [
            value
            for other, [first, *_] in found
            if other.method == point.method and first.path in alike and (value := held_out[other]) is not None
        ]
        best = len(rivals) > 1 and own is not None and own == max(rivals)
        chosen: list[Cell] = [None if own is None else Number(100 * own), "●" if best else ""]
        rows.append([point.method, *settings, *chosen[: 2 * aside], accuracy(runs), *exits, *padding])
    more = ["held out (%)", "best"] if aside else []
    header = ["method", *keys, *more, "averaged (%)", *(f"exit {j + 1} (%)" for j in range(most))]
    what = settings_in_words([run for _, runs in found for run in runs])
    return Sheet("Sweep", header, rows, f"{what}. {NOTES}{HELD_OUT * aside}")


def _held_out(runs: Sequence[Run]) -> float | None:
    """Give the mean over seeds of the accuracy on calibration samples, where there are any."""
    values = [value for run in runs if (value := run.held_out()) is not None]
    return sum(values) / len(values) if len(values) == len(runs) else None
