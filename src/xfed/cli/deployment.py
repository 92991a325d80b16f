"""`xfed export`, `verify` and `device-bench`: from a run to a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from xfed.cli.options import parse_clients
from xfed.errors import InputError
from xfed.runs.reader import open_run
from xfed_runtime import FORMATS

BUNDLE = click.Argument(["path"], type=Path, metavar="BUNDLE")


def deployment_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    return [
        click.Command(
            "export",
            callback=_export,
            params=[
                click.Argument(["path"], type=Path, metavar="RUN"),
                click.Option(["--clients"], default="all", metavar="0-9,12|all", help="whose models to include"),
                click.Option(
                    ["--format", "formats"],
                    default=",".join(FORMATS),
                    metavar="a,b",
                    help="onnx-stages: a graph per stage, for batches; onnx-if: one graph that skips by itself",
                ),
                click.Option(["-o", "--out"], type=Path, required=True, metavar="folder", help="where the bundle goes"),
            ],
            help="Write a bundle that devices run with xfed-runtime: numpy and ONNX Runtime, no torch.",
        ),
        click.Command(
            "verify",
            callback=_verify,
            params=[
                BUNDLE,
                click.Option(["--run"], type=Path, metavar="RUN", help="the run it was exported from, if it moved"),
            ],
            help="Prove that a bundle gives PyTorch's numbers and really skips what comes after an exit.",
        ),
        click.Command(
            "device-bench",
            callback=_device_bench,
            params=[
                BUNDLE,
                click.Option(["-o", "--out"], type=Path, required=True, metavar="path", help="table to write (JSON)"),
                click.Option(["--client"], type=int, help="whose model; the first one's unless given"),
                click.Option(["--format"], default=FORMATS[0], metavar="|".join(FORMATS), help="form of the graphs"),
                click.Option(["--threads"], type=click.IntRange(1), default=1, show_default=True, help="threads"),
                click.Option(
                    ["--repetitions"], type=click.IntRange(1), default=200, show_default=True, help="samples per exit"
                ),
            ],
            help="Measure how long each exit takes on this device.",
        ),
    ]


@contextmanager
def _told() -> Iterator[None]:
    """Tell what the runtime refuses as bad input."""
    from xfed_runtime import BundleError, InputsError, PolicyError

    try:
        yield
    except (BundleError, InputsError, PolicyError) as error:
        raise InputError(str(error)) from None


def _export(path: Path, clients: str, formats: str, out: Path) -> None:
    run = open_run(path)
    chosen = parse_clients(clients, run.experiment.dealing.clients)
    try:
        from xfed.export.bundle import export
    except ModuleNotFoundError as error:
        raise InputError(f"the export needs {error.name}; install it with: pip install 'xfed[export]'") from None
    with _told():
        export(run, chosen, formats.split(","), out)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    Console().print(
        f"bundle: {out}, {len(chosen)} client{'s' * (len(chosen) > 1)}, {formats}, {size / 1e6:.1f} MB; "
        f"'xfed verify {out}' checks it",
        highlight=False,
        soft_wrap=True,
    )


def _verify(path: Path, run: Path | None) -> None:
    from xfed.export.verify import run_of, verify
    from xfed_runtime import Bundle

    with _told():
        bundle = Bundle.open(path)
        found = verify(bundle, open_run(run) if run is not None else run_of(bundle))
    table = Table()
    table.add_column("format")
    for column in ("exit", "largest difference", "MACs", "executed", "ms"):
        table.add_column(column, justify="right")
    for check in found.checks:
        numbers = f"{check.difference:.1e}", f"{check.macs:,}", f"{check.executed:,}", f"{check.ms:.2f}"
        table.add_row(check.format, str(check.exit + 1), *numbers)
    console = Console()
    console.print(table)
    whose = f"{found.samples} samples of clients {', '.join(map(str, found.clients))}"
    if found.problems:
        click.echo(f"xfed: {path}: {found.problems[0]}", err=True)
        raise click.exceptions.Exit(1)
    console.print(
        f"{path}: the same as PyTorch on {whose}; what comes after an exit is not computed",
        highlight=False,
        soft_wrap=True,
    )


def _device_bench(path: Path, out: Path, client: int | None, format: str, threads: int, repetitions: int) -> None:
    from xfed_runtime import Bundle, measure

    with _told():
        bundle = Bundle.open(path)
        runtime = bundle.runtime(bundle.clients[0] if client is None else client, format, threads)
        device = measure(runtime, repetitions, threads)
    out.parent.mkdir(parents=True, exist_ok=True)
    device.write(out)
    table = Table()
    for column in ("exit", "wall ms", "CPU ms", "share of time", "share of MACs"):
        table.add_column(column, justify="right")
    for index, (wall, cpu, macs) in enumerate(zip(device.exits_ms, device.exits_cpu_ms, bundle.macs, strict=True), 1):
        shares = f"{wall / device.exits_ms[-1]:.3f}", f"{macs / bundle.macs[-1]:.3f}"
        table.add_row(str(index), f"{wall:.3f}", f"{cpu:.3f}", *shares)
    console = Console()
    console.print(table)
    console.print(f"table: {out}", highlight=False, soft_wrap=True)
