"""Where raw data is looked for, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from xfed.data.raw.locations import cache_root, data_roots


def test_several_folders_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    monkeypatch.setenv("XFED_DATA", "/a::/b")
    assert data_roots() == (Path("/a"), Path("/b"), Path("/c/xfed"))


def test_without_settings_the_cache_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("XFED_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "xfed"
    assert data_roots() == (cache_root(),)
