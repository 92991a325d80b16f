"""What went wrong, in the words of a library but in one line."""

from __future__ import annotations


def reason(error: Exception) -> str:
    """Give the first line of an error's message, ready to stand inside a sentence."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(" .:,;")
