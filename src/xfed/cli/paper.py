"""`xfed paper`: tables and figures by name, and pages of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from xfed.cli.options import DATA_DIR, ENGINE, REUSE, SET, WORKERS, gather, out_option, parse_seeds
from xfed.cli.output import OF_TRAINING, Output, number_for
from xfed.cli.planning import PLAN, carry_out_told, tell_plan
from xfed.comparison import Reuse
from xfed.errors import InputError
from xfed.kernels.choice import KernelChoice
from xfed.paper.artefact import check_datasets
from xfed.paper.catalogue import ARTEFACTS, artefact
from xfed.paper.gallery import made_in, write_gallery
from xfed.paper.kept import KeptRun
from xfed.paper.page import write_page
from xfed.paper.scales import SCALES, Choice, Scale
from xfed.report.terminal import show_listing
from xfed.runs.finding import find_runs


def paper_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the group."""
    return [click.Group("paper", commands=[LIST, RUN, KEEP, PAGE], help="The paper's tables and figures, by name.")]


def _list() -> None:
    body = [(each.name, each.place, each.title) for each in ARTEFACTS.values()]
    show_listing(["name", "in the paper", "what it shows"], body, whole=2)


def parse_numbers(text: str | None) -> tuple[float, ...] | None:
    """Read numbers with commas between them."""
    try:
        return None if text is None else tuple(float(each) for each in text.split(","))
    except ValueError:
        raise InputError(f"--alphas is {text!r}; allowed: numbers with commas, such as 0.3,0.1") from None


def _run(
    name: str,
    scale: Scale,
    datasets: str | None,
    alphas: str | None,
    methods: str | None,
    seeds: str,
    out: Path,
    reuse: Reuse,
    only_plan: bool,
    kernels: str | None,
    engine: str | None,
    workers: int | None,
    data_dir: Path | None,
    assignments: tuple[str, ...],
    **_: Any,
) -> None:
    output = Output.wanted()
    chosen = artefact(name)
    place = {"kernels": kernels, "engine": engine, "workers": workers, "data_dir": data_dir}
    given = {key: value for key, value in place.items() if value is not None}
    wanted_datasets, wanted_methods = (text.split(",") if text else None for text in (datasets, methods))
    check_datasets(wanted_datasets)
    choice = Choice(
        scale, wanted_datasets, parse_numbers(alphas), wanted_methods, tuple(parse_seeds(seeds)), given,
        gather({}, assignments),
    )  # fmt: skip
    planned = chosen.plan(choice, out / "runs", reuse)
    if only_plan:
        tell_plan(planned, output)
        return
    product = chosen.produce(choice, carry_out_told(planned, output))
    folder = chosen.folder(choice, out)

    def texts(suffix: str) -> dict[Path, str]:
        home = folder.with_name(folder.name + suffix)
        return {home / f"{stem}.csv": sheet.comma_separated() for stem, sheet in product.sheets.items()}

    written = product.write(folder.with_name(folder.name + number_for(texts)))
    if not output.quiet:
        for sheet in product.sheets.values():
            sheet.show(output.wide)
    output.say("written: " + ", ".join(map(str, written)))


def _keep(runs: tuple[Path, ...], to: Path) -> None:
    for run in find_runs(runs):
        print(KeptRun.of(run).write(to))


def _page(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        write = write_gallery if made_in(folder) else write_page
        for path in write(folder):
            print(path)


KEEP = click.Command(
    "keep",
    callback=_keep,
    params=[
        click.Argument(["runs"], metavar="RUN...", nargs=-1, required=True, type=Path),
        click.Option(["--to"], type=Path, required=True, metavar="folder", help="folder of runs to be shown together"),
    ],
    help="Keep finished runs in small form: settings, costs and every client's accuracy, as text; no models.",
)
PAGE = click.Command(
    "page",
    callback=_page,
    params=[click.Argument(["folders"], metavar="FOLDER...", nargs=-1, required=True, type=Path)],
    help=(
        "Write a page of results into a folder of kept runs (tables, figure, and which differences are real), or into "
        "one where 'xfed paper run' wrote (all tables and figures together)."
    ),
)
LIST = click.Command("list", callback=_list, help="Name every table and figure.")
RUN = click.Command(
    "run",
    callback=_run,
    params=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--scale"],
            type=click.Choice(SCALES),
            default="small",
            show_default=True,
            help="the paper's protocol; the same with narrow networks and fewer rounds; or seconds, for tests",
        ),
        click.Option(["--datasets"], metavar="a,b", help="only these of its data sets"),
        click.Option(["--alphas"], metavar="0.3,0.1", help="only these α of its Dirichlet partitions"),
        click.Option(["--methods"], metavar="a,b", help="only these of its methods"),
        click.Option(["--seeds"], default="1", show_default=True, metavar="1,2,3", help="average over these seeds"),
        out_option("runs, which all names share, tables and figures; earlier results stay", "runs/paper"),
        SET,
        REUSE,
        PLAN,
        click.Option(["--kernels"], type=click.Choice(get_args(KernelChoice)), help="kernels of all runs"),
        ENGINE,
        WORKERS,
        DATA_DIR,
        *OF_TRAINING,
    ],
    help="Make a table or figure: run what is missing, reuse the rest, write Markdown, CSV, LaTeX, SVG and PNG.",
)
