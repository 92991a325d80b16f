"""The published pages are what the command makes of the kept runs beside them, and what is said of them is on them."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon

from xfed.cli import execute
from xfed.paper.catalogue import ARTEFACTS
from xfed.paper.kept import Accuracies, KeptRun, kept_runs
from xfed.paper.page import label
from xfed.paper.scales import Choice
from xfed_runtime.answers import Answer

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


def test_the_tables_of_the_paper_are_on_one_page(tmp_path: Path) -> None:
    again = tmp_path / "paper"
    shutil.copytree(RESULTS / "paper", again)
    published = (again / "README.md").read_text(encoding="utf-8")
    (again / "README.md").unlink()
    assert execute(["paper", "page", str(again)]) == 0
    assert (again / "README.md").read_text(encoding="utf-8") == published


@pytest.mark.parametrize("name", ["ablation", "motivation"])
def test_rows_of_the_papers_tables_are_of_kept_runs(name: str) -> None:
    """Each row's settings are those of a run that is kept, and its number is that run's."""
    changes = {"model": "convnet", "convnet.width": 32, "rounds": 60, "lr_decay": 0.99, "eval_every": 10}
    choice = Choice("small", ["cifar100"], None, None, (1,), {"kernels": "auto"}, changes)
    kept = [run for folder in PAGES if folder.name.startswith("cifar100") for run in kept_runs(folder)]
    with (RESULTS / "paper" / f"{name}-small" / "table.csv").open(encoding="utf-8") as file:
        said = {row["variant"]: float(row["averaged"]) for row in csv.DictReader(file)}
    wanted = ARTEFACTS[name].experiments(choice)
    assert said.keys() == {each.variant for each in wanted}
    for each, (experiment,) in wanted.items():
        run = next(run for run in kept if run.experiment == experiment)
        assert said[each.variant] == pytest.approx(100 * run.accuracy().mean(), abs=1e-3), each.variant


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


def test_the_overview_links_every_page() -> None:
    pages = (RESULTS / "README.md").read_text(encoding="utf-8").partition("## Pages")[2]
    linked = set(re.findall(r"^\| \[[^]]+\]\(([\w-]+)/README\.md\)", pages, re.MULTILINE))
    assert linked == {folder.name for folder in PAGES} | {"paper"}


def test_how_sure_is_what_the_kept_runs_say() -> None:
    """Means over the seeds that a method has, and X-FED+'s leads client by client; every other method is behind."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8").partition("## How sure")[2].partition("\n## ")[0]
    header, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    methods = [cell.strip() for cell in header.split("|")[3:6]]
    assert len(lines) == 5
    for line in lines:
        place, seeds, *said, _ = (cell.strip() for cell in line.split("|")[1:-1])
        numbers = [float(cell.partition(" ")[0]) for cell in said]
        match = re.search(r"\(([\w-]+)/README\.md\)", place)
        assert match, line
        found: dict[str, dict[int, KeptRun]] = {}
        for run in kept_runs(RESULTS / match[1]):
            e = run.experiment
            if label(run, e.training.lr) == e.method and str(e.seed) in seeds.split(", "):
                found.setdefault(e.method, {})[e.seed] = run
        assert ", ".join(map(str, sorted(found["xfed-plus"]))) == seeds
        for method, number in zip(methods, numbers, strict=False):
            mean = np.mean([100 * run.accuracy() for run in found[method].values()])
            assert number == pytest.approx(mean, abs=0.0051), (line, method)
        leads = {method: gaps(found["xfed-plus"], runs) for method, runs in found.items() if method != "xfed-plus"}
        alike = gaps(found["xfed-plus"], found["fedrod"], "running")
        expected = [leads["xfed"].mean(), leads["fedrod"].mean(), alike.mean()]
        assert numbers[3:6] == pytest.approx(expected, abs=0.0051), line
        assert numbers[6] == pytest.approx(wilcoxon(alike).pvalue, rel=0.051), line
        assert all(lead.mean() > 0 for lead in leads.values()), line


def test_the_readme_begins_with_four_lines_of_it() -> None:
    """Accuracies as in the table of how sure that is, with one digit less."""
    title = r"^\| \[?(CIFAR-100, ResNet-18|CIFAR-100?|AG News)\b[^|]*\| [^|]+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+)"
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", RESULTS / "README.md")]
    short, long = (re.findall(title, re.sub(r"^.*Dir\(0\.1\).*$", "", text, flags=re.M), re.M) for text in texts)
    assert len(short) == 4
    for (name, *ours), (same, *theirs) in zip(short, long, strict=True):
        assert name == same
        assert [float(each) for each in ours] == pytest.approx([float(each) for each in theirs], abs=0.051), name


def gaps(ours: dict[int, KeptRun], theirs: dict[int, KeptRun], answers: Answer | None = None) -> Accuracies:
    """Give the gaps in points; those below a thousandth are of accuracies kept to six digits, and none."""
    pairs = ((ours[seed].accuracy(answers), run.accuracy(answers)) for seed, run in theirs.items())
    return np.concatenate([100 * (mine - other) for mine, other in pairs]).round(3)
