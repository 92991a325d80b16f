"""The how-to page does what it says: its commands, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xfed import open_run
from xfed.cli import execute

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "many-clients.md").read_text(encoding="utf-8")
SMALL = "--clients 200 --sample 0.02 --rounds 1 --epochs 1 --convnet.width 4 --out small"


@pytest.mark.slow
def test_everything_on_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```console\n(.+?)```", PAGE, re.DOTALL)
    many, save, use = (line.split()[1:] for block in blocks for line in block.splitlines())
    assert execute([*many, *SMALL.split()]) == 0, "the page's own run, with less of everything"
    assert open_run(Path("small")).experiment.dealing.samples_per_client == 40
    assert execute(save) == 0
    assert execute([*use, "--out", "used"]) == 0
    assert open_run(Path("used")).experiment.dealing.clients == 1_000
