"""The front door: parse, carry out, and tell bad input in one sentence with exit code 2.

Commands are imported when they are called, so that help and listings are there at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from xfed.errors import ClientError, InputError, Interrupted

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(execute(sys.argv[1:] if arguments is None else list(arguments)))


def execute(arguments: Sequence[str]) -> int:
    """Run the command line and give the exit code."""
    from xfed.cli.group import FrontDoor

    try:
        code = FrontDoor(arguments).main(args=list(arguments), prog_name="xfed", standalone_mode=False)
    except InputError as error:
        return _tell(str(error), BAD_INPUT)
    except click.UsageError as error:
        return _tell(" ".join(error.format_message().split()), BAD_INPUT)
    except ClientError as error:
        return _tell(f"{error}\nnothing computed before is lost: 'xfed resume' continues the run", FAILED)
    except click.Abort as abort:  # what click makes of Ctrl-C
        cause = abort.__cause__
        advice = f"; continue with 'xfed resume {cause.path}'" if isinstance(cause, Interrupted) else ""
        return _tell(f"interrupted{advice}", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _tell(sentence: str, code: int) -> int:
    print(f"xfed: {sentence}", file=sys.stderr)
    return code
