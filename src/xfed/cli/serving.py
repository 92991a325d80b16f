"""`xfed serve`: the runtime's own command, under xfed's name."""

from __future__ import annotations

from collections.abc import Sequence

import click

from xfed.errors import InputError
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.command import parser, serve

PROGRAM = "xfed serve"


def serving_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command; its options are declared by the runtime, which reads them too."""
    return [
        click.Command(
            "serve",
            callback=_serve,
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "help_option_names": []},
            help=parser(PROGRAM).description,
        )
    ]


def _serve(arguments: tuple[str, ...]) -> None:
    try:
        serve(arguments, PROGRAM)
    except ServingError as error:
        raise InputError(str(error)) from None
    except SystemExit as ended:  # the parser's: it has said why
        raise click.exceptions.Exit(ended.code if isinstance(ended.code, int) else 1) from None
