"""One process at a time works on a run. The lock is the kernel's: it ends with the process, however that ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from xfed.errors import InputError

LOCK = ".lock"
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold a run directory for the block; refuse where another process holds it, and name that one."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise in_use(root, _read(root)) from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            warnings.warn(
                f"the disk of {str(root)!r} has no locks; make sure that no other process works on this run",
                stacklevel=3,
            )
        file.truncate(0)
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        json.dump(holder, file)
        file.flush()
        yield
        file.truncate(0)


def holder(root: Path) -> dict[str, Any] | None:
    """Tell who works on a run right now; nobody where the lock is free."""
    try:
        with (root / LOCK).open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(root)
    except OSError:
        return None
    return None


def in_use(root: Path, holder: dict[str, Any]) -> InputError:
    """Build the error for a run directory that another process works on."""
    return InputError(f"run directory {str(root)!r} is in use by {in_words(holder)}; wait for it or stop it first")


def in_words(holder: dict[str, Any]) -> str:
    """Name a process for people."""
    if not {"pid", "host", "since"} <= holder.keys():
        return "another process"
    return f"process {holder['pid']} on {holder['host']} since {holder['since']}"


def _read(root: Path) -> dict[str, Any]:
    """Read who holds the lock; nothing where that is not written yet."""
    try:
        noted = json.loads((root / LOCK).read_text(encoding="utf-8"))
        return noted if isinstance(noted, dict) else {}
    except (OSError, ValueError):
        return {}
