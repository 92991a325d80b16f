"""`xfed sweep`: a user's own grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from xfed.cli.options import REUSE, SEEDS, PanelCommand, experiment_options, gather, glance, parse_seeds
from xfed.cli.planning import Teller, tell_plan
from xfed.cli.training import FILE, SET, read_file
from xfed.comparison import Reuse, carry_out, plan_runs
from xfed.components import load_plugins
from xfed.errors import Interrupted
from xfed.protocol.algorithm import methods
from xfed.report.sheet import Cell, Sheet, accuracy
from xfed.sweep import Point, plan_sweep, read_grid

NOTES = (
    "Accuracy in %, last evaluation, on each client's own test samples: mean ± std over clients; with several seeds, "
    "means of both, and the std over seeds of the mean beside them."
)


def sweeping_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command; --help shows the settings of the components named in `arguments`."""
    load_plugins(glance(arguments, "--plugin"))
    listed = [name for text in glance(arguments, "--methods") for name in text.split(",")] or ["xfed"]
    chosen = [*listed, *glance(arguments, "--dataset"), *glance(arguments, "--model")]
    return [
        PanelCommand(
            "sweep",
            callback=_sweep,
            params=[
                FILE,
                click.Option(["--methods", "names"], default="xfed", metavar="a,b,c|all", help="methods of the grid"),
                click.Option(
                    ["--vary", "lines"],
                    multiple=True,
                    metavar="key=a,b,c",
                    help="values of a setting; several make a grid; a method's own (xfed.mu) vary for it alone",
                ),
                SEEDS,
                REUSE,
                click.Option(
                    ["--out"],
                    type=Path,
                    default=Path("runs/sweep"),
                    show_default=True,
                    help="folder for runs and table",
                ),
                click.Option(["--plan", "only_plan"], is_flag=True, help="only say what is left to do"),
                SET,
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
    values = gather(read_file(settings_file), assignments)
    chosen = [component.name for component in methods] if names == "all" else names.split(",")
    points = plan_sweep(values, chosen, read_grid(lines), parse_seeds(seeds or str(values.get("seed", 1))))
    planned = plan_runs([each for point in points for each in point.experiments], out, reuse)
    tell_plan(planned)
    if only_plan:
        return
    try:
        runs = iter(carry_out(planned, before=Teller(planned)))
    except Interrupted:
        Console(stderr=True).print("interrupted; the same command goes on where it stopped", highlight=False)
        raise click.exceptions.Exit(130) from None
    sheet = table([(point, [next(runs) for _ in point.experiments]) for point in points])
    written = sheet.write(out / "sweep")
    sheet.show()
    Console().print("written: " + ", ".join(map(str, written)), highlight=False, soft_wrap=True)


def table(found: Sequence[tuple[Point, Any]]) -> Sheet:
    """Lay the grid out, a row per point."""
    keys = list(dict.fromkeys(key for point, _ in found for key in point.varied))
    most = max(len(runs[0].exit_macs) for _, runs in found)
    rows: list[list[Cell]] = []
    for point, runs in found:
        exits = [accuracy(runs, j) for j in range(len(runs[0].exit_macs))]
        settings = [str(point.varied[key]) if key in point.varied else "–" for key in keys]
        padding: list[Cell] = [None] * (most - len(exits))
        rows.append([point.method, *settings, accuracy(runs), *exits, *padding])
    header = ["method", *keys, "averaged", *(f"exit {j + 1}" for j in range(most))]
    return Sheet("Sweep", header, rows, NOTES)
