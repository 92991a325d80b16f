"""`xfed report`: runs as one interactive page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from xfed.cli.options import DEVICE, RUNS, out_option
from xfed.errors import InputError
from xfed.report.page.build import write_page
from xfed.report.terminal import say
from xfed.runs.finding import find_runs
from xfed.units import counted
from xfed_runtime.device import Device, DeviceError


def report_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command."""
    return [
        click.Command(
            "report",
            callback=_report,
            params=[
                RUNS,
                out_option("file to write", "report.html", metavar="file"),
                DEVICE,
            ],
            help="Write one page about runs, or about all finished runs in a folder, to open from disk.",
        )
    ]


def _report(paths: Sequence[Path], out: Path, device: Path | None) -> None:
    if out.is_file() and not out.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise InputError(f"{str(out)!r} is there and no page; give another name")
    runs = [run for run in find_runs(paths) if run.finished or run.path in paths]
    if not runs:
        raise InputError(f"there is no finished run under {', '.join(repr(str(path)) for path in paths)}")
    latencies = None
    if device is not None:
        try:
            latencies = Device.read(device).latencies
        except DeviceError as error:
            raise InputError(str(error)) from None
    write_page(runs, out, latencies)
    say(f"{counted(len(runs), 'run')} in {out} ({out.stat().st_size / 1e6:.1f} MB)")
