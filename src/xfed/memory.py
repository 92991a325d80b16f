"""How much memory is left, to refuse in a sentence what would not fit."""

from __future__ import annotations

import re
from pathlib import Path

from xfed.errors import InputError

MEMINFO = Path("/proc/meminfo")
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""Where containers write their limit and what is used of it."""


def free_memory() -> int | None:
    """Give the bytes that are left on this machine and in this container; nothing where nobody says."""
    known = []
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", MEMINFO.read_text(encoding="ascii"), re.MULTILINE)
        known += [1024 * int(found[1])] if found else []
    except OSError:
        return None
    for limit, used in CGROUPS:
        try:
            known.append(int(limit.read_text()) - int(used.read_text()))
        except (OSError, ValueError):  # no such container, or one without a limit
            continue
    return min(known, default=None)


def refuse_too_large(what: str, nbytes: float, advice: str) -> None:
    """Refuse something that needs more memory than there is; `what` begins the sentence, `advice` ends it."""
    free = free_memory()
    if free is not None and nbytes > free:
        raise InputError(f"{what} needs {nbytes / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free; {advice}")
