"""Benchmarks that reach into a run still run: tiny ones, whose times mean nothing and are not looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RACE = ["--samples", "400", "--clients", "8", "--cohort", "2", "--widths", "4", "--epochs", "1", "--batch-size", "16"]
SCALE = ["--clients", "8", "40", "--methods", "xfed", "--cohort", "4", "--rounds", "3", "--width", "4"]
ENGINES = ["--engines", "serial", "processes", "--clients", "3", "--samples", "40", "--epochs", "1", "--rounds", "2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "options", "words"),
    [
        ("round", [*RACE, "--repetitions", "1", "--workers", "2"], "of the bare loop, the same bits"),
        ("scale", [*SCALE, "--repetitions", "1"], "xfed      40 clients: time per round ×"),
        ("engines", [*ENGINES, "--workers", "2", "--repetitions", "1"], "processes  45 MB, 3 clients:"),
    ],
)
def test_it_comes_to_its_figures(benchmark: str, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert words in done.stdout, done.stderr
