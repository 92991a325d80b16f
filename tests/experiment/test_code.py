"""The code digest sees what decides numbers, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import xfed.experiment.code as module
from xfed.experiment.code import ROOMS, code_digest, what_runs

SOURCE = '''
"""What this module is for."""

from pydantic import Field

RATE = 0.1  # a comment


class Settings:
    """Settings."""

    mu: float = Field(0.6, description="how strong")


def step(x):
    """Take a step."""
    if x < 0:
        raise ValueError(f"{x} is below zero")
    return x - RATE
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What this module is for.", "Another text."),
        ("  # a comment", ""),
        ('description="how strong"', 'description="strength of the pull, at least 0"'),
        ('f"{x} is below zero"', '"give a number that is not negative"'),
        ('    """Take a step."""\n', ""),
        ("\n\n\nclass", "\n\nclass"),
    ],
)
def test_words_for_people_do_not_count(old: str, new: str) -> None:
    assert old in SOURCE
    assert what_runs(SOURCE.replace(old, new)) == what_runs(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"), [("0.1", "0.2"), ("0.6", "0.7"), ("x - RATE", "x + RATE"), ("x < 0", "x <= 0"), ("mu", "nu")]
)
def test_what_runs_counts(old: str, new: str) -> None:
    assert what_runs(SOURCE.replace(old, new)) != what_runs(SOURCE)


def test_only_the_rooms_that_decide_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(module.__file__).parents[1]
    copy = Path(shutil.copytree(package, tmp_path / "xfed", ignore=shutil.ignore_patterns("__pycache__")))
    monkeypatch.setattr(module, "__file__", str(copy / "experiment" / "code.py"))
    digest = code_digest.__wrapped__
    before = digest()
    for path in ("cli/training.py", "report/tables.py", "errors.py", "engines/serial.py", "runs/reader.py"):
        (copy / path).write_text((copy / path).read_text() + "\nHARMLESS = 1\n")
    assert digest() == before
    for room in ROOMS:
        path = copy / room if room.endswith(".py") else sorted((copy / room).glob("*.py"))[-1]
        text = path.read_text()
        path.write_text(text + "\nDECISIVE = 1\n")
        assert digest() != before, room
        path.write_text(text)
    assert digest() == before
