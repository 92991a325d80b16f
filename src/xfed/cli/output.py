"""What a command prints: --quiet, --verbose and --wide; and files that never take another result's place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import click

from xfed.errors import InputError
from xfed.progress import Shown
from xfed.report.terminal import say

QUIET = click.Option(["-q", "--quiet"], is_flag=True, help="print errors alone")
VERBOSE = click.Option(["-v", "--verbose"], is_flag=True, help="a line for every round and every client")
WIDE = click.Option(["--wide"], is_flag=True, help="all columns and notes, however wide")
OF_TRAINING: tuple[click.Parameter, ...] = (QUIET, VERBOSE, WIDE)


@dataclass(frozen=True)
class Output:
    """How much the user wants to see."""

    progress: Shown = True
    wide: bool = False

    @classmethod
    def wanted(cls) -> Output:
        """Read it off the present command's options."""
        given = click.get_current_context().params
        if given.get("quiet") and given.get("verbose"):
            raise InputError("--quiet and --verbose do not go together")
        progress: Shown = "verbose" if given.get("verbose") else not given.get("quiet")
        return cls(progress, bool(given.get("wide")))

    @property
    def quiet(self) -> bool:
        """Whether nothing but errors is wanted."""
        return not self.progress

    def say(self, text: str) -> None:
        """Print a line, unless nothing is wanted."""
        if not self.quiet:
            say(text)


def number_for(texts: Callable[[str], Mapping[Path, str]]) -> str:
    """Number results so that they replace no others: '', '-2', '-3' and so on; equal ones keep their number.

    `texts` gives what would be written where under a number.
    """
    for number in count(1):
        suffix = "" if number == 1 else f"-{number}"
        there = {path: text for path, text in texts(suffix).items() if path.exists()}
        if all(path.read_text(encoding="utf-8") == text for path, text in there.items()):
            return suffix
    raise AssertionError("numbers never end")
