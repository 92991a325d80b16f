"""`xfed serve`: what it needs, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xfed.cli import execute


def test_without_the_extra_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "xfed_runtime.serving.listening", raising=False)
    assert execute(["serve", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err == "xfed: serving needs uvicorn; install it with: pip install 'xfed-runtime[serve]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{folder}"], "is not a bundle: bundle.json cannot be read"),
        (["{folder}", "--device", "{folder}/none.json"], "latency table '{folder}/none.json' cannot be read"),
        (["{folder}", "--port", "70000"], "--port is '70000'; allowed: whole numbers from 0 to 65535"),
        ([], "the following arguments are required: BUNDLE"),
    ],
)
def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert execute(["serve", *(each.format(folder=tmp_path) for each in arguments)]) == 2
    assert sentence.format(folder=tmp_path) in capsys.readouterr().err
