"""`xfed run`, `compare`, `resume` and `show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from xfed.cli.options import DATA_DIR, REUSE, SEEDS, PanelCommand, experiment_options, gather, glance, parse_seeds
from xfed.comparison import Reuse, compare, plan_comparison
from xfed.components import load_plugins
from xfed.experiment import Experiment, read_settings
from xfed.experiment.sections import Place
from xfed.files import write_text
from xfed.kernels.choice import Kernels
from xfed.protocol.algorithm import methods
from xfed.report.figures import exits_and_rounds
from xfed.report.tables import collect, comma_separated, markdown, show
from xfed.running import resume, run
from xfed.runs.reader import Run, open_run

SET = click.Option(
    ["--set", "assignments"], multiple=True, metavar="key=value", help="set any setting, e.g. xfed.mu=0.7"
)
FILE = click.Argument(["settings_file"], required=False, metavar="[SETTINGS.yaml]", type=Path)


def training_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands; --help shows the settings of the components named in `arguments`."""
    load_plugins(glance(arguments, "--plugin"))
    defaults = {name: Experiment.model_fields[name].default for name in ("method", "dataset", "model")}
    defaults["engine"] = Place.model_fields["engine"].default
    chosen = [(glance(arguments, f"--{name}") or [default])[-1] for name, default in defaults.items()]
    listed = [name for text in glance(arguments, "--methods") for name in text.split(",")]
    return [
        PanelCommand(
            "run",
            callback=_run,
            params=[FILE, SET, *experiment_options((), chosen)],
            help="Train a method; with no argument, X-FED on the embedded data.",
        ),
        PanelCommand(
            "compare",
            callback=_compare,
            params=[
                FILE,
                click.Option(
                    ["--methods", "names"],
                    default="xfed,fedper,fedavg,local",
                    metavar="a,b,c|all",
                    help="what to compare",
                ),
                SEEDS,
                REUSE,
                click.Option(
                    ["--out"],
                    type=Path,
                    default=Path("runs/compare"),
                    help="folder for runs, table and figure",
                ),
                SET,
                *experiment_options(("method", "out"), [*(listed or ["xfed"]), *chosen[1:]]),
            ],
            help="Run several methods on one partition and one stream of cohorts, or reuse runs; print one table.",
        ),
        click.Command(
            "resume",
            callback=_resume,
            params=[
                click.Argument(["path"], type=Path, metavar="RUN"),
                click.Option(["--round", "from_round"], type=int, help="continue from this round's checkpoint"),
                click.Option(["--engine"], help="run elsewhere; `xfed engines` lists where"),
                click.Option(["--workers"], help="number of workers"),
                DATA_DIR,
            ],
            help="Continue a run after any interruption.",
        ),
        click.Command(
            "show",
            callback=_show,
            params=[click.Argument(["path"], type=Path, metavar="RUN")],
            help="Summarise a run.",
        ),
    ]


def _run(settings_file: Path | None, assignments: Sequence[str], **_: Any) -> None:
    experiment = Experiment.from_mapping(gather(read_file(settings_file), assignments))
    _show_run(run(experiment))


def _compare(
    settings_file: Path | None,
    names: str,
    seeds: str | None,
    reuse: Reuse,
    out: Path,
    assignments: Sequence[str],
    **_: Any,
) -> None:
    values = gather(read_file(settings_file), assignments)
    chosen = [component.name for component in methods] if names == "all" else names.split(",")
    numbers = parse_seeds(seeds or str(values.get("seed", 1)))
    runs = compare(plan_comparison(values, chosen, numbers), out, reuse=reuse)
    rows = collect(runs)
    write_text(out / "table.md", markdown(rows, runs))
    write_text(out / "table.csv", comma_separated(rows, runs))
    exits_and_rounds(rows, runs, out / "accuracy.png")
    show(rows, runs)
    Console().print(f"table: {out / 'table.md'}   figure: {out / 'accuracy.png'}", highlight=False, soft_wrap=True)


def _resume(path: Path, from_round: int | None, **elsewhere: Any) -> None:
    given = {name: value for name, value in elsewhere.items() if value is not None}
    _show_run(resume(path, from_round=from_round, **given))


def _show(path: Path) -> None:
    _show_run(open_run(path))


def read_file(path: Path | None) -> dict[str, Any]:
    """Read a settings file, where one is given."""
    return {} if path is None else read_settings(path)


def _show_run(shown: Run) -> None:
    console = Console()
    e = shown.experiment
    done = len(shown.records())
    state = "finished" if shown.finished else f"stopped after round {done}; 'xfed resume {shown.path}' continues it"
    console.print(
        f"[bold]{shown.path}[/bold]: {e.method} on {e.dataset}, {e.training.rounds} rounds, seed {e.seed}, {state}"
    )
    if not (shown.evaluations() and shown.records()):
        console.print("no evaluation with a checkpoint yet")
        return
    show(collect([shown]), [shown])
    macs = shown.exit_macs
    console.print("MACs per input, leaving at exit: " + ", ".join(f"{j + 1}: {m:,}" for j, m in enumerate(macs)))
    kernels = Kernels.of_note(shown.environment()["kernels"])
    console.print(f"kernels: {kernels.sentence()}", highlight=False, soft_wrap=True)
