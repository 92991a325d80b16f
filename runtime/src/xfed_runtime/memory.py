"""How much memory this process has held."""

from __future__ import annotations

import sys


def peak_memory_mb() -> float | None:
    """Give the most memory that this process has held, in MB; nothing where the system does not tell."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
