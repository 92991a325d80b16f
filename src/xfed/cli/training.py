"""`xfed run`, `compare` and `resume`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from xfed.cli.options import (
    DATA_DIR,
    ENGINE,
    FILE,
    REUSE,
    RUN,
    SEEDS,
    SET,
    WORKERS,
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
from xfed.cli.showing import show_run
from xfed.comparison import Reuse, plan_comparison, plan_runs
from xfed.components import load_plugins
from xfed.experiment import Experiment
from xfed.files import write_text
from xfed.report.figures import draw_accuracy
from xfed.report.rows import collect
from xfed.report.tables import comma_separated, markdown, show
from xfed.resuming import ELSEWHERE, resume
from xfed.running import run
from xfed.runs.amending import AMENDABLE


def training_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands; --help shows the settings of the components named in `arguments`."""
    if arguments[:1] != ["resume"]:  # there, a plug-in takes the place of the run's own
        load_plugins(glance(arguments, "--plugin"))
    chosen = [name for names in chosen_components(arguments).values() for name in names]
    dry_run = click.Option(
        ["--dry-run"],
        is_flag=True,
        help="train nothing: show all settings, and what bytes, MACs, memory and time the run will take here",
    )
    return [
        PanelCommand(
            "run",
            callback=_run,
            params=[FILE, SET, dry_run, *OF_TRAINING, *experiment_options((), chosen)],
            help="Train a method; with no argument, X-FED on the embedded data.",
        ),
        PanelCommand(
            "compare",
            callback=_compare,
            params=[
                FILE,
                methods_option("xfed,fedper,fedavg,local"),
                SEEDS,
                REUSE,
                out_option("runs, tables and figures; earlier results stay", "runs/compare"),
                PLAN,
                SET,
                *OF_TRAINING,
                *experiment_options(("method", "out"), chosen),
            ],
            help="Run several methods on one partition and one stream of cohorts, or reuse runs; print one table.",
        ),
        click.Command(
            "resume",
            callback=_resume,
            params=[
                RUN,
                click.Option(["--round", "from_round"], type=int, help="go back to this round's checkpoint first"),
                click.Option(["--rounds"], help="continue to so many rounds, also after the end; recorded in the run"),
                click.Option(["--lr"], help="go on with another learning rate (of round 1); recorded in the run"),
                click.Option(["--on-failure"], metavar="stop|drop", help="when a client fails; recorded in the run"),
                click.Option(
                    ["--plugin"],
                    multiple=True,
                    type=Path,
                    metavar="path",
                    help="mended plug-in in the place of the run's own of that name; recorded in the run",
                ),
                ENGINE,
                WORKERS,
                DATA_DIR,
                *OF_TRAINING,
            ],
            help="Continue a run after any interruption, or beyond its end.",
        ),
    ]


def _run(settings_file: Path | None, assignments: Sequence[str], dry_run: bool, **_: Any) -> None:
    experiment = Experiment.from_mapping(gather(read_file(settings_file), assignments))
    output = Output.wanted()
    if dry_run:
        from xfed.cli.rehearsing import tell_rehearsal

        tell_rehearsal(experiment, output)
    else:
        show_run(run(experiment, output.progress), output)


def _compare(
    settings_file: Path | None,
    names: str,
    seeds: str | None,
    reuse: Reuse,
    out: Path,
    only_plan: bool,
    assignments: Sequence[str],
    **_: Any,
) -> None:
    output = Output.wanted()
    values = gather(read_file(settings_file), assignments)
    numbers = parse_seeds(seeds or str(values.get("seed", 1)))
    planned = plan_runs(plan_comparison(values, parse_methods(names), numbers), out, reuse)
    if only_plan:
        tell_plan(planned, output)
        return
    runs = carry_out_told(planned, output)
    rows = collect(runs)
    table = comma_separated(rows, runs)
    number = number_for(lambda suffix: {out / f"table{suffix}.csv": table})
    write_text(out / f"table{number}.md", markdown(rows, runs))
    write_text(out / f"table{number}.csv", table)
    draw_accuracy(runs, out / f"accuracy{number}.png")
    if not output.quiet:
        show(rows, runs, output.wide)
    if number:
        output.say(f"{out / 'table.csv'} is of other runs and stays; this result is number {number[1:]}")
    output.say(f"table: {out / f'table{number}.md'} (and .csv)   figure: {out / f'accuracy{number}.png'}")


def _resume(path: Path, from_round: int | None, plugin: tuple[Path, ...], **otherwise: Any) -> None:
    output = Output.wanted()
    given = {name: otherwise[name] for name in (*ELSEWHERE, *AMENDABLE) if otherwise.get(name) is not None}
    show_run(resume(path, output.progress, from_round, (), plugin, **given), output)
