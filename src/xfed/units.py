"""Durations, sizes and numbers of things as people write them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Write how long something takes, in one unit."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {counted(round(max(seconds, 1)), 'second')}"


def counted(number: int, thing: str) -> str:
    """Write how many there are of something: 1 run, 2 runs."""
    return f"{number} {thing}{'s' * (number != 1)}"


def size(count: float) -> str:
    """Write bytes with three digits or so."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
