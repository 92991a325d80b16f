"""Every block of every page, in the order in which a reader meets them, in a clean folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, read_blocks
from tests.pages.reading import reading

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "runtime" / "README.md"]
    if read_blocks(path)
)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with reading(tmp_path, capsys, monkeypatch) as reader:
        for block in read_blocks(ROOT / page):
            reader.follow(block)
