"""Signals that wait: what is half made or half freed when an interrupt comes, nobody could free any more."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals wait until the block is done; where Python handles none, in other threads, nothing changes."""
    caught: list[int] = []
    before = {}
    try:
        with suppress(ValueError):
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, lambda received, _: caught.append(received))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if caught:
            signal.raise_signal(caught[0])
