"""`xfed export`, `verify` and `device-bench`: from a run to a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from xfed.cli.options import RUN, clients_option, out_option, parse_clients
from xfed.errors import InputError
from xfed.report.terminal import say, show_table
from xfed.runs.reader import open_run
from xfed.units import counted
from xfed_runtime import FORMATS

if TYPE_CHECKING:
    from xfed.bundles.card import ExitFigures

PRECISIONS = ("fp32", "fp16", "int8")
BUNDLE = click.Argument(["path"], type=Path, metavar="BUNDLE")


def deployment_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    return [
        click.Command(
            "export",
            callback=_export,
            params=[
                RUN,
                clients_option("all", "whose models to include"),
                click.Option(
                    ["--format", "formats"],
                    default=",".join(FORMATS[:2]),
                    show_default=True,
                    metavar="a,b",
                    help="onnx-stages: a graph per stage, for batches; onnx-if: one graph that skips by itself; "
                    "executorch: a program with a method per stage",
                ),
                click.Option(
                    ["--precision"],
                    type=click.Choice(PRECISIONS),
                    default="fp32",
                    show_default=True,
                    help="numbers of the networks: fp16 halves the files, int8 quarters them and computes in bytes",
                ),
                click.Option(
                    ["--standalone"],
                    is_flag=True,
                    help="no bundle, but one ONNX file for each client with everything in it, for other tools",
                ),
                out_option("where the bundle goes", required=True),
            ],
            help="Write a bundle that devices run with xfed-runtime: numpy and ONNX Runtime, no torch.",
        ),
        click.Command(
            "verify",
            callback=_verify,
            params=[
                BUNDLE,
                click.Option(
                    ["--run"],
                    type=Path,
                    metavar="RUN",
                    help="compute PyTorch's answers anew from this run; else those that the export left in the bundle",
                ),
                click.Option(
                    ["--key"], type=Path, metavar="public.pem", help="check that this Ed25519 key signed the bundle"
                ),
            ],
            help="Prove that a bundle gives PyTorch's numbers and really skips what comes after an exit.",
        ),
        click.Command(
            "sign",
            callback=_sign,
            params=[
                BUNDLE,
                click.Option(
                    ["--key"], type=Path, required=True, metavar="private.pem", help="Ed25519 private key (PEM)"
                ),
            ],
            help="Sign a bundle with everything in it.",
        ),
        click.Command(
            "device-bench",
            callback=_device_bench,
            params=[
                BUNDLE,
                out_option("table to write (JSON)", metavar="file", required=True),
                click.Option(["--client"], type=int, help="whose model; the first one's unless given"),
                click.Option(["--format"], default=FORMATS[0], metavar="|".join(FORMATS), help="form of the graphs"),
                click.Option(["--threads"], type=click.IntRange(1), default=1, show_default=True, help="threads"),
                click.Option(
                    ["--provider", "providers"],
                    multiple=True,
                    metavar="name",
                    help="ONNX Runtime's execution provider; may be given several times, the preferred first "
                    "[CPUExecutionProvider]",
                ),
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


def _export(path: Path, clients: str, formats: str, precision: Any, standalone: bool, out: Path) -> None:
    run = open_run(path)
    chosen = parse_clients(clients, run.experiment.dealing.clients)
    try:
        from xfed.bundles.bundle import export
        from xfed.bundles.standalone import export_standalone
    except ModuleNotFoundError as error:
        raise InputError(f"the export needs {error.name}; install it with: pip install 'xfed[export]'") from None
    with _told():
        if standalone:
            if precision != "fp32":
                raise InputError(f"--standalone writes float32; --precision {precision} goes with a bundle")
            export_standalone(run, chosen, out)
        else:
            card = export(run, chosen, formats.split(","), out, precision)
            _show_precision(card.exits, precision)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    whose = counted(len(chosen), "client")
    if standalone:
        say(f"{out}: one file for each of {whose}, {size / 1e6:.1f} MB")
    else:
        say(f"bundle: {out}, {whose}, {formats}, {size / 1e6:.1f} MB; 'xfed verify {out}' checks it")


def _show_precision(exits: Sequence[ExitFigures], precision: str) -> None:
    """Print what less than float32 costs in accuracy, where that could be measured."""
    if precision == "fp32":
        return
    if exits[0].stored is None:
        say(f"accuracy in {precision} is not known, and thresholds are float32's: no calibration samples at hand")
        return
    body = []
    for number, each in enumerate(exits, 1):
        before, after = each.stored or (0.0, 0.0)
        body.append([str(number), f"{before:.2%}", f"{after:.2%}", f"{100 * (after - before):+.2f}"])
    show_table(
        ["exit", "fp32", precision, "difference"],
        body,
        title="accuracy on test samples, mean over clients",
        texts=0,
        wide=True,
    )


def _verify(path: Path, run: Path | None, key: Path | None) -> None:
    from xfed.bundles.verify import verify
    from xfed_runtime import Bundle

    with _told():
        bundle = Bundle.open(path)
        if key is not None:
            problem = _signing().signature_problem(bundle, key)
            if problem is not None:
                _fail(path, problem)
            say(f"{path}: signed by {key}, digest {bundle.digest}")
        found = verify(bundle, None if run is None else open_run(run))
    body = []
    for check in found.checks:
        executed = "not counted" if check.executed is None else f"{check.executed:,}"
        numbers = f"{check.difference:.1e}", f"{check.macs:,}", executed, f"{check.ms:.2f}"
        body.append([check.format, str(check.exit + 1), *numbers])
    show_table(["format", "exit", "largest difference", "MACs", "executed", "ms"], body, wide=True)
    if found.problems:
        _fail(path, found.problems[0])
    source = "noted at the export" if run is None else f"computed anew from {run}"
    say(
        f"{path}: the same as PyTorch ({source}) on {found.samples} inputs to clients "
        f"{', '.join(map(str, found.clients))}; what comes after an exit is not computed"
    )


def _fail(path: Path, problem: str) -> NoReturn:
    click.echo(f"xfed: {path}: {problem}", err=True)
    raise click.exceptions.Exit(1)


def _sign(path: Path, key: Path) -> None:
    from xfed_runtime import Bundle

    with _told():
        bundle = Bundle.open(path)
        signature = _signing().sign(bundle, key)
    say(f"signed: {signature}, digest {bundle.digest}")


def _signing() -> ModuleType:
    try:
        from xfed.bundles import signing
    except ModuleNotFoundError as error:
        raise InputError(f"signatures need {error.name}; install it with: pip install 'xfed[sign]'") from None
    return signing


def _device_bench(
    path: Path,
    out: Path,
    client: int | None,
    format: str,
    threads: int,
    providers: tuple[str, ...],
    repetitions: int,
) -> None:
    from xfed_runtime import Bundle, measure
    from xfed_runtime.device import Device, DeviceError
    from xfed_runtime.sessions import CPU, SessionSettings

    if out.exists():
        try:
            Device.read(out)
        except DeviceError:
            raise InputError(f"{str(out)!r} is there and no table of latencies; give another name") from None
    with _told():
        bundle = Bundle.open(path)
        settings = SessionSettings(threads, providers or (CPU,))
        runtime = bundle.runtime(bundle.clients[0] if client is None else client, format, settings=settings)
        device = measure(runtime, repetitions, threads)
    out.parent.mkdir(parents=True, exist_ok=True)
    device.write(out)
    body = []
    slow = (device.by_quantile(quantile).slow for quantile in (0.95, 0.99))
    columns = device.exits_ms, *slow, device.exits_cpu_ms
    for index, times in enumerate(zip(*columns, strict=True)):
        shares = f"{times[0] / device.exits_ms[-1]:.3f}", f"{bundle.macs[index] / bundle.macs[-1]:.3f}"
        body.append([str(index + 1), *(f"{each:.3f}" for each in times), *shares])
    show_table(
        ["exit", "wall ms", "95 %", "99 %", "CPU ms", "share of time", "share of MACs"], body, texts=0, wide=True
    )
    memory = "" if device.peak_memory_mb is None else f"; peak memory of this process {device.peak_memory_mb:.0f} MB"
    say(f"table: {out}{memory}")
