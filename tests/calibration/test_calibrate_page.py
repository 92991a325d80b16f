"""What the page on calibration shows, carried out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import tiny
from xfed import run
from xfed.cli import execute
from xfed_runtime.policy import Policy

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "calibrate.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_commands_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(tiny(out=Path("runs/mine"), rounds=1, calibration=0.4), progress=False)
    times = {"exits_ms": [1.0, 2.0, 6.0], "exits_cpu_ms": [1.0, 2.0, 6.0], "exits_p95_ms": [2.0, 3.0, 9.0]}
    table = {"device": "board", "runtime": "none", "threads": 1, "repetitions": 1, **times}
    Path("device.json").write_text(json.dumps(table))
    commands = re.findall(r"\$ xfed (calibrate .*?)(?:  +#.*)?\n", "".join(blocks("console")))
    assert len(commands) == 7
    for command in commands:
        expected = 2 if "--loss error" in command else 0  # after one round even the full model errs too often
        assert execute(command.split()) == expected
    (code,) = blocks("python")
    exec(compile(code, str(PAGE), "exec"), {})


def test_policies() -> None:
    (text,) = blocks("json")
    assert Policy.from_json(json.loads(text)).threshold == (0.9, 0.8, 0.75)
