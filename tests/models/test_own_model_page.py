"""The how-to page is code: what it says is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xfed import open_run
from xfed.cli import execute

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-model.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_plugin_and_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_net.py").write_text(_blocks("python")[0], encoding="utf-8")
    (command,) = _blocks("console")
    program, *arguments = command.split()
    assert program == "xfed"
    assert execute([*arguments, "--engine", "serial", "--clients", "4", "--epochs", "1", "--out", "mine"]) == 0
    run = open_run(Path("mine"))
    assert run.finished
    assert run.experiment.settings["model"] == {"width": 8}
    assert [head.linear.in_features for head in run.model(0).exits] == [8, 8, 8]


def test_stages_by_hand() -> None:
    exec(compile(_blocks("python")[1], str(PAGE), "exec"), {"__name__": "page"})


def test_the_entry_point_names_the_registrys_group() -> None:
    assert '[project.entry-points."xfed.models"]' in _blocks("toml")[0]
