"""The front door: parse, carry out, and tell what cannot be done in one sentence.

Commands are imported when they are called, so that help and listings are there at once. So is everything else that
takes time to import: an interrupt then finds this module ready for it.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what batch systems and containers send; both end a command in the same way."""
INTERRUPTED = 130
DEBUG = "--debug"
"""Goes with any command, at any place: shows where an error happened."""


class Stopped(KeyboardInterrupt):
    """A signal came. A kind of its own: of a plain KeyboardInterrupt that passes through `exec`, Python keeps a note,
    and whatever becomes of it, the process then ends by SIGINT."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        if _importing_torch():
            print("xfed: interrupted", file=sys.stderr)
            _leave_at_once(128 + number)
        raise Stopped

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # whoever started this may not want to be interrupted
            signal.signal(number, interrupt)
    try:
        code = execute(sys.argv[1:] if arguments is None else list(arguments))
        for number in SIGNALS:
            if signal.getsignal(number) is interrupt:
                signal.signal(number, signal.SIG_DFL)  # what is left is Python's own end: nothing to be told of
    except BaseException:  # an interrupted import may raise anything
        if not received:
            raise
        print("xfed: interrupted", file=sys.stderr)
        code = INTERRUPTED
    if received:
        _leave_at_once(128 + received[0])
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Run the command line and give the exit code."""
    from xfed.cli.telling import flush_output, ready_output, tell

    debug = DEBUG in arguments
    given = [argument for argument in arguments if argument != DEBUG]
    ready_output()
    try:
        code = _carry_out(given)
        flush_output()
    except (Exception, SystemExit) as error:
        return tell(error, debug)
    return code if isinstance(code, int) else 0


def _carry_out(arguments: Sequence[str]) -> object:
    import click

    from xfed.cli.completion import completing, words_so_far
    from xfed.cli.group import FrontDoor

    try:
        return FrontDoor(words_so_far(arguments)).main(list(arguments), prog_name="xfed", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 0
    except SystemExit as ended:  # click's way once a line is completed
        if not completing():
            raise
        return ended.code


def _importing_torch() -> bool:
    """Tell whether torch is half imported: an exception that passes through its C++ then aborts the process."""
    return getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)


def _leave_at_once(code: int) -> None:
    """Exit as Python does, but without taking torch apart, which takes it most of a second."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
