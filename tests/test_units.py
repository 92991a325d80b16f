"""Durations and sizes for people."""

from __future__ import annotations

import pytest

from xfed.units import duration, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 second"), (80, "80 seconds"), (600, "10 minutes"), (7200, "2 hours"), (3e5, "3 days")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == f"about {words}"


@pytest.mark.parametrize(
    ("count", "words"), [(8, "8 B"), (999, "999 B"), (1000, "1.0 kB"), (76_592, "76.6 kB"), (2.5e9, "2.50 GB")]
)
def test_sizes(count: float, words: str) -> None:
    assert size(count) == words
