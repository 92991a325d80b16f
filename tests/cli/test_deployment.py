"""`xfed export`, `verify` and `device-bench`: which clients, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xfed import Run
from xfed.cli import execute
from xfed.cli.deployment import parse_clients
from xfed.errors import InputError


def test_clients_by_numbers_and_ranges() -> None:
    assert parse_clients("all", 3) == [0, 1, 2]
    assert parse_clients("7,0-2,1", 8) == [0, 1, 2, 7]
    for wrong in ("", "a", "3-1", "-1", "1-", "0,,1"):
        with pytest.raises(InputError, match="allowed: numbers and ranges"):
            parse_clients(wrong, 8)
    with pytest.raises(InputError, match="the run has clients 0 to 7"):
        parse_clients("0-8", 8)


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert execute(arguments) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def test_bad_input_in_one_sentence(
    train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(train(rounds=1).path)
    out = ["-o", str(tmp_path / "bundle")]
    assert "unknown format 'onyx'" in told(["export", run, "--format", "onyx", *out], capsys)
    assert "0 to 5" in told(["export", run, "--clients", "9", *out], capsys)
    assert "not a run directory" in told(["export", str(tmp_path), *out], capsys)
    assert "exists already" in told(["export", run, "-o", run], capsys)
    assert not (tmp_path / "bundle").exists()
    assert "is not a bundle" in told(["verify", str(tmp_path)], capsys)
    assert "is not a bundle" in told(["device-bench", str(tmp_path), "-o", str(tmp_path / "d.json")], capsys)
    (tmp_path / "run" / "finished.json").unlink()
    assert "is not finished" in told(["export", run, *out], capsys)
