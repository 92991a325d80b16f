"""What a user meets when something cannot be done: bad input, and mishaps of the world around, each as a sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class InputError(Exception):
    """Bad input, told in one sentence that names the culprit and what is allowed.

    The command line prints the sentence and exits with code 2, without a traceback.
    """


class ClientError(RuntimeError):
    """Client work failed; says which client and when, with the cause, and of what kind the failure was."""

    def __init__(self, message: str, failure: str = "error") -> None:
        super().__init__(message)
        self.failure = failure


class Interrupted(KeyboardInterrupt):
    """A run was stopped by hand; `path` is where it can be continued from."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


def unknown(kind: str, name: object, allowed: Iterable[str]) -> InputError:
    """Build the error for a name that is not among the allowed ones, with the nearest one as a hint."""
    choices = sorted(allowed)
    close = get_close_matches(str(name), choices, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return InputError(f"unknown {kind} {name!r}{hint}; allowed: {', '.join(choices) or 'none'}")


WORLD = {
    errno.ENOSPC: ("there is no space left on its disk", "free some, or use another disk"),
    errno.EDQUOT: ("your share of its disk is used up", "free some of it, or use another disk"),
    errno.EROFS: ("its disk can only be read", "use a folder on another one"),
    errno.EACCES: ("you may not", "ask its owner, or use another folder"),
    errno.EPERM: ("you may not", "ask its owner, or use another folder"),
    errno.ENAMETOOLONG: ("the name is too long", "use a shorter one"),
    errno.ELOOP: ("its symbolic links lead in a circle", "remove the link that points back"),
    errno.ENOTDIR: ("a part of the path is a file and no folder", "use another path"),
    errno.EISDIR: ("it is a folder", "give a file"),
    errno.ENOENT: ("there is no such file or folder", "check the path"),
    errno.EEXIST: ("there is something already", "use another name"),
    errno.ENOTEMPTY: ("there is something already", "use another name"),
    errno.EIO: ("its disk fails", "save what can be read from it, and use another one"),
    errno.ESTALE: ("its network disk is gone", "mount it again"),
    errno.EMFILE: ("too many files are open", "allow more with 'ulimit -n'"),
    errno.ENFILE: ("too many files are open on this machine", "close other programs"),
    errno.ENOMEM: ("there is no memory left", "close other programs, or use fewer --workers"),
    errno.EADDRINUSE: ("another program listens there already", "use another port"),
}
"""What the operating system means, and what to do, by the number of its error."""


def in_words(error: OSError) -> str:
    """Say what the operating system refused, about which path, and what to do."""
    named = [str(name) for name in (error.filename, error.filename2) if name is not None]
    where = " and ".join(repr(name[:200] + "…" if len(name) > 200 else name) for name in named)
    if error.errno not in WORLD:
        told = " ".join(str(error.strerror or error).split())
        return f"{where} cannot be used: {told}" if where else told
    what, advice = WORLD[error.errno]
    return f"{where or 'the output'} cannot be used: {what}; {advice}"
