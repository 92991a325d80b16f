"""The one exception a user meets: something they gave us cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class InputError(Exception):
    """Bad input, told in one sentence that names the culprit and what is allowed.

    The command line prints the sentence and exits with code 2, without a traceback.
    """


class ClientError(RuntimeError):
    """Client work failed; says which client and when, with the cause."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped by hand; `path` is where it can be continued from."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


def unknown(kind: str, name: str, allowed: Iterable[str]) -> InputError:
    """Build the error for a name that is not among the allowed ones, with the nearest one as a hint."""
    choices = sorted(allowed)
    close = get_close_matches(name, choices, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return InputError(f"unknown {kind} {name!r}{hint}; allowed: {', '.join(choices) or 'none'}")
