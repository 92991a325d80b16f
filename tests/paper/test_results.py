"""The published pages are what the command makes of the kept runs beside them, and what is said of them is on them."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from xfed.cli import execute
from xfed.paper.kept import kept_runs
from xfed.paper.page import label

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = sorted(path.parent for path in RESULTS.glob("*/table.csv"))
NUMBERED_ROW = re.compile(
    r"\| \**([a-z-]+)\**(?: \(tuned\))?((?: \(\w+ [\w.]+\))?) \| "
    r"([\d.]+) ± ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|"
)


@pytest.mark.parametrize("folder", PAGES, ids=lambda path: path.name)
def test_a_page_is_made_of_its_kept_runs(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / folder.name
    shutil.copytree(folder, again)
    made = ("README.md", "table.csv", "differences.csv")
    for name in made:
        (again / name).unlink()
    assert execute(["paper", "page", str(again)]) == 0
    assert (again / "README.md").read_text(encoding="utf-8") == (folder / "README.md").read_text(encoding="utf-8")
    for name in made[1:]:
        for ours, published in zip(cells(again / name), cells(folder / name), strict=True):
            assert ours == pytest.approx(published), name


def cells(path: Path) -> list[list[float | str]]:
    def number(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    with path.open(encoding="utf-8", newline="") as file:
        return [[number(text) for text in row] for row in csv.reader(file)]


def test_the_readme_shows_the_first_seed_of_the_page() -> None:
    """All methods and settings of theirs, in order, with accuracy, spread and exits of the answers that count."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Real data")[2]
    said = {match[1] + match[2]: list(map(float, match.groups()[2:])) for match in NUMBERED_ROW.finditer(text)}
    shown = {}
    for run in kept_runs(RESULTS / "cifar10"):
        e = run.experiment
        if e.seed == 1 and e.training.refit is None and e.answers is None:
            found = 100 * run.clients[e.answering()]
            shown[label(run, e.training.lr)] = [found.mean(), found.mean(axis=1).std(), *found.mean(axis=0)]
    assert said.keys() == shown.keys()
    assert list(said) == sorted(said, key=lambda row: -said[row][0])
    for row, values in shown.items():
        assert said[row] == pytest.approx(values, abs=0.0051), row


def test_the_overview_names_the_best_of_every_page() -> None:
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    lines = {
        match[1]: match[0] for match in re.finditer(r"^\| \[[^]]+\]\(([\w-]+)/README\.md\).*$", text, re.MULTILINE)
    }
    assert set(lines) == {folder.name for folder in PAGES}
    for folder in PAGES:
        with (folder / "table.csv").open(encoding="utf-8") as file:
            methods = [row for row in csv.DictReader(file) if row["method"] != "majority class"]
        for row in methods[:3]:
            assert f"{row['method']} {float(row['averaged']):.2f}" in lines[folder.name], folder.name
