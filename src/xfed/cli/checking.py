"""`xfed check`: what a run directory is, whether it is whole, and what can be recovered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from xfed.runs.checking import check, put_settings_back


def checking_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command."""
    return [
        click.Command(
            "check",
            callback=_check,
            params=[
                click.Argument(["path"], type=Path, metavar="RUN"),
                click.Option(
                    ["--settings", "mend"], is_flag=True, help="first put edited or lost settings back as they were"
                ),
            ],
            help="Read all of a run, and say whether it is whole and what can be recovered; exit code 1 if it is not.",
        )
    ]


def _check(path: Path, mend: bool) -> None:
    if mend:
        put_settings_back(path)
    health = check(path)
    click.echo(f"{path}: {health.state}; {health.files} files, {health.bytes / 1e6:.1f} MB")
    for problem in health.problems:
        click.echo(f"- {problem.what}\n  {problem.remedy}")
    if health.foreign:
        click.echo(f"not written by this run, which does it no harm: {', '.join(map(str, health.foreign))}")
    if health.problems:
        raise click.exceptions.Exit(1)
    click.echo(health.verdict)
