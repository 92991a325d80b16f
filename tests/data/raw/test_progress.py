"""Progress of a download, for those who watch."""

from __future__ import annotations

import pytest

from xfed.data.raw.progress import progress


def test_nothing_is_printed_where_nobody_watches(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("decoding", 10) as advance, progress("fetching", None, size_in_bytes=True) as received:
        advance(4)
        received(1024)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_what_is_done(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("decoding", 10) as advance:
        advance(4)
    assert "decoding" in capfd.readouterr().err
