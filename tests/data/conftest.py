"""Every test of the data gets an empty data folder and an empty cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep decoded copies inside the test's own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "xfed"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Look for raw data in an empty folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("XFED_DATA", str(folder))
    return folder
