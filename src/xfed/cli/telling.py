"""The one place where what went wrong becomes a sentence and an exit code: 2 for input, 1 for the world."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import TextIO

import click

from xfed.errors import ClientError, InputError, Interrupted, in_words
from xfed.spelling import SPELL_OUT

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
NO_MEMORY = ("can't allocate memory", "out of memory")
"""How torch words it."""


def tell(error: BaseException, debug: bool) -> int:
    """Print what happened, what a run's folder allows from here on, and with `debug` where it happened; give the code.

    What cannot be said because the output is closed or full is left unsaid; the code tells it.
    """
    sentence, code = sentence_of(error)
    if debug and not isinstance(error, click.Abort):
        traceback.print_exception(error)
    try:
        if sentence:
            print("\n".join([f"xfed: {sentence}", *getattr(error, "__notes__", ())]), file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)
    return code


def sentence_of(error: BaseException) -> tuple[str, int]:
    """Put an error into words."""
    if isinstance(error, click.Abort):  # what click makes of Ctrl-C
        cause = error.__cause__
        advice = f"; continue with 'xfed resume {cause.path}'" if isinstance(cause, Interrupted) else ""
        return f"interrupted{advice}", INTERRUPTED
    if isinstance(error, InputError):
        return str(error), BAD_INPUT
    if isinstance(error, click.UsageError):
        return " ".join(error.format_message().split()), BAD_INPUT
    if isinstance(error, ClientError):
        return str(error), FAILED
    if _came_of_an_interrupt(error):
        return "interrupted", INTERRUPTED
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        return "", FAILED  # whoever read the output has had enough
    if isinstance(error, OSError):
        return in_words(error), FAILED
    told = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(words in told for words in NO_MEMORY):
        return f"there is not enough memory ({told or 'MemoryError'}); use a smaller network or fewer --workers", FAILED
    if isinstance(error, SystemExit):
        return f"a plug-in ended the program (sys.exit({error.code!r})); it must raise an error or return", FAILED
    what = f"{type(error).__name__}: {told}" if told else type(error).__name__
    return f"an error that nobody foresaw: {what}; the same command with --debug shows where", FAILED


def _came_of_an_interrupt(error: BaseException | None) -> bool:
    """Tell whether an error is what an import made of an interrupt that it met half-way."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def ready_output() -> None:
    """Let output that the terminal's alphabet lacks (±, ×) be spelt out instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors=SPELL_OUT)


def flush_output() -> None:
    """Write out what is still buffered, while a failure can be told."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _abandon(sys.stdout)
        raise error


def _abandon(stream: TextIO) -> None:
    """Let what is left of a stream go nowhere: else Python would complain about it once more at its end."""
    with suppress(OSError, ValueError):  # streams that are no files have no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
