"""What the pages on reproducing and reporting show, carried out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import tiny
from xfed import run
from xfed.cli import execute

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```console\n(.*?)```", (HOW_TO / page).read_text(encoding="utf-8"), re.DOTALL)
    return [line.split() for line in re.findall(r"\$ xfed (.*?)(?:  +#.*)?\n", "".join(blocks))]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "shown"), [("reproduce.md", 9), ("report.md", 3)])
def test_commands(page: str, shown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, method in (("one", "xfed"), ("two", "fedper"), ("compare/three", "fedavg")):
        run(tiny(out=Path("runs") / name, rounds=1, method=method, calibration=0.3), progress=False)
    times = {"exits_ms": [1.0, 2.0, 6.0], "exits_cpu_ms": [1.0, 2.0, 6.0]}
    table = {"device": "board", "runtime": "none", "threads": 1, "repetitions": 1, **times}
    Path("device.json").write_text(json.dumps(table))
    found = commands(page)
    assert len(found) == shown
    for command in found:
        without_data = (0, 2) if "small" in command else (0,)
        assert execute(command) in without_data, "only what needs real data may be refused, where there is none"
