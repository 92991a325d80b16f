"""The commands: run, resume, compare, show, methods, datasets, models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from xfed.cli.data import data_commands
from xfed.cli.deployment import deployment_commands
from xfed.cli.inference import inference_commands
from xfed.cli.models import DESCRIBE
from xfed.cli.options import PanelCommand, experiment_options, gather, glance, setting_lines
from xfed.cli.serving import serving_commands
from xfed.comparison import compare, plan_comparison
from xfed.components import Component
from xfed.data.dataset import datasets
from xfed.errors import InputError
from xfed.experiment import Experiment, read_settings
from xfed.files import write_text
from xfed.kernels.choice import Kernels
from xfed.models.network import models
from xfed.protocol.algorithm import methods
from xfed.report.figures import exits_and_rounds
from xfed.report.tables import collect, comma_separated, markdown, show
from xfed.running import Run, open_run, resume, run

SET = click.Option(
    ["--set", "assignments"], multiple=True, metavar="key=value", help="set any setting, e.g. xfed.mu=0.7"
)
FILE = click.Argument(["settings_file"], required=False, metavar="[SETTINGS.yaml]", type=Path)


def build(arguments: Sequence[str]) -> click.Group:
    """Build the command line; --help shows the settings of the components named in `arguments`."""
    defaults = {name: Experiment.model_fields[name].default for name in ("method", "dataset", "model")}
    chosen = [(glance(arguments, f"--{name}") or [default])[-1] for name, default in defaults.items()]
    listed = [name for text in glance(arguments, "--methods") for name in text.split(",")]
    group = click.Group(
        "xfed",
        help="Personalized federated learning of early-exit networks.",
        context_settings={"max_content_width": 110},
    )
    group.add_command(
        PanelCommand(
            "run",
            callback=_run,
            params=[FILE, SET, *experiment_options((), chosen)],
            help="Train a method; with no argument, X-FED on the embedded data.",
        )
    )
    group.add_command(
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
                click.Option(["--seeds"], metavar="1,2,3", help="average over these seeds instead of --seed"),
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
        )
    )
    group.add_command(
        click.Command(
            "resume",
            callback=_resume,
            params=[
                click.Argument(["path"], type=Path, metavar="RUN"),
                click.Option(["--round", "from_round"], type=int, help="continue from this round's checkpoint"),
                click.Option(["--engine"], help="run elsewhere: processes or serial"),
                click.Option(["--workers"], help="number of worker processes"),
            ],
            help="Continue a run after any interruption.",
        )
    )
    group.add_command(
        click.Command(
            "show",
            callback=_show,
            params=[click.Argument(["path"], type=Path, metavar="RUN")],
            help="Summarise a run.",
        )
    )
    group.add_command(data_commands(arguments))
    for command in (*inference_commands(), *deployment_commands(), *serving_commands()):
        group.add_command(command)
    for name, components in (("methods", methods), ("datasets", datasets), ("models", models)):
        group.add_command(_listing(name, list(components)))
    return group


def _run(settings_file: Path | None, assignments: Sequence[str], **_: Any) -> None:
    experiment = Experiment.from_mapping(gather(_file(settings_file), assignments))
    _show_run(run(experiment))


def _compare(
    settings_file: Path | None,
    names: str,
    seeds: str | None,
    out: Path,
    assignments: Sequence[str],
    **_: Any,
) -> None:
    values = gather(_file(settings_file), assignments)
    chosen = [component.name for component in methods] if names == "all" else names.split(",")
    try:
        numbers = [int(seed) for seed in (seeds or str(values.get("seed", 1))).split(",")]
    except ValueError:
        raise InputError(f"--seeds is {seeds!r}: allowed are whole numbers with commas, such as 1,2,3") from None
    runs = compare(plan_comparison(values, chosen, numbers), out)
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


def _file(path: Path | None) -> dict[str, Any]:
    return {} if path is None else read_settings(path)


def _show_run(shown: Run) -> None:
    console = Console()
    e = shown.experiment
    done = len(shown.rounds())
    state = "finished" if shown.finished else f"stopped after round {done}; 'xfed resume {shown.path}' continues it"
    console.print(f"[bold]{shown.path}[/bold]: {e.method} on {e.dataset}, {e.rounds} rounds, seed {e.seed}, {state}")
    if not (shown.evaluations() and shown.rounds()):
        console.print("no evaluation with a checkpoint yet")
        return
    show(collect([shown]), [shown])
    environment = shown.environment()
    macs = environment["network"]["exit_macs"]
    console.print("MACs per input, leaving at exit: " + ", ".join(f"{j + 1}: {m:,}" for j, m in enumerate(macs)))
    if "kernels" in environment:  # in runs since there is a choice
        console.print(f"kernels: {Kernels.of_note(environment['kernels']).sentence()}", highlight=False, soft_wrap=True)


def _listing(name: str, components: Sequence[type[Component]]) -> click.Command:
    plugin = click.Option(["--plugin"], multiple=True, metavar="path", help="Python file that registers more")
    text = f"List the {name} there are, with their settings."
    if name != "models":
        return click.Command(name, callback=lambda plugin: _list(components), params=[plugin], help=text)

    def list_unless_described(plugin: Sequence[str]) -> None:
        if click.get_current_context().invoked_subcommand is None:
            _list(components)

    return click.Group(
        name,
        callback=list_unless_described,
        params=[plugin],
        help=text,
        invoke_without_command=True,
        commands=[DESCRIBE],
    )


def _list(components: Sequence[type[Component]]) -> None:
    table = Table(show_lines=True)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is, and the settings it takes")
    for component in components:
        lines = [component.summary()]
        for name, kind, default, text in setting_lines(component.Settings):
            lines.append(f"[cyan]{component.name}.{name}[/cyan] \\[{kind}] = {default}: {text}")
        table.add_row(component.name, "\n".join(lines))
    Console().print(table)
