"""Kept runs and their page: every number can be had again from the run's own files."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from xfed import Run
from xfed.cli import execute
from xfed.errors import InputError
from xfed.paper.kept import KeptRun, kept_runs
from xfed.paper.page import write_page
from xfed.report.sheet import Number


@pytest.fixture
def runs(train: Callable[..., Run]) -> list[Run]:
    return [
        train("a", method="xfed-plus", seed=1),
        train("b", method="xfed-plus", seed=2),
        train("c", method="fedper", seed=1),
        train("d", method="fedper", seed=1, refit=0.03),
        train("e", method="fedavg", seed=1, lr=0.01),
    ]


def last(run: Run) -> pd.DataFrame:
    table: pd.DataFrame = pd.read_parquet(max((run.path / "metrics").glob("*.parquet")))
    return table


def test_what_is_kept_is_what_the_run_wrote(runs: list[Run], tmp_path: Path) -> None:
    kept = KeptRun.read(KeptRun.of(runs[0]).write(tmp_path / "kept"))
    table = last(runs[0])
    for kind in ("own", "running"):
        expected = table.pivot_table(index="client", columns="exit", values=kind).to_numpy()
        np.testing.assert_allclose(kept.clients[kind], expected, atol=1e-6)  # type: ignore[index]
        np.testing.assert_allclose(kept.curves[kind][-1], expected.mean(axis=0), atol=1e-6)  # type: ignore[index]
    assert kept.experiment == runs[0].experiment.changed(out=None)
    assert not list((tmp_path / "kept").rglob("*.safetensors"))
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert not any(str(tmp_path) in text for text in texts), "no path of this machine is kept"


def test_the_page_says_what_the_metrics_say(runs: list[Run], tmp_path: Path) -> None:
    """Rows by what differs, seeds together; the lead over each other row is paired by client."""
    folder = tmp_path / "kept"
    assert execute(["paper", "keep", *(str(run.path) for run in runs), "--to", str(folder)]) == 0
    assert execute(["paper", "page", str(folder)]) == 0
    with (folder / "table.csv").open(encoding="utf-8") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"xfed-plus", "fedper", "fedper (refit 0.03)", "fedavg (rate 0.01)", "majority class"}
    means = [100 * last(run).groupby("client")["running"].mean().mean() for run in runs[:2]]
    assert float(rows["xfed-plus"]["averaged"]) == pytest.approx(np.mean(means), abs=1e-3)
    assert float(rows["xfed-plus"]["averaged, std over seeds"]) == pytest.approx(np.std(means, ddof=1), abs=1e-3)
    trivial = [100 * run.environment()["majority_baseline"]["mean"] for run in runs[:2]]
    assert float(rows["majority class"]["averaged"]) == pytest.approx(np.mean(trivial), abs=1e-3)
    held_out = [100 * run.held_out() for run in runs[:2]]  # type: ignore[operator]
    assert float(rows["xfed-plus"]["held out"]) == pytest.approx(np.mean(held_out), abs=1e-3)
    own = 100 * last(runs[2]).groupby("client")["own"].mean().mean()
    assert float(rows["fedper"]["averaged"]) == pytest.approx(own, abs=1e-3)
    with (folder / "differences.csv").open(encoding="utf-8") as file:
        against = list(csv.DictReader(file))
    assert len(against) == 3
    fedper = next(row for row in against if row["against"] == "fedper")
    mine, theirs = (last(run).groupby("client") for run in (runs[0], runs[2]))
    for column, ours, other in (
        ("lead (points)", "running", "own"),
        ("with own answers", "own", "own"),
        ("with running answers", "running", "running"),
    ):
        lead = 100 * (mine[ours].mean() - theirs[other].mean()).mean()
        assert float(fedper[column].partition(" ")[0]) == pytest.approx(lead, abs=0.0051), column
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "seeds ±" in text
    assert (folder / "figure.svg").is_file()


@pytest.mark.parametrize(("way", "said"), [("dirichlet", "12.34"), ("iid", "")])
def test_published_numbers_stand_beside_partitions_of_their_kind(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, said: str
) -> None:
    monkeypatch.setattr("xfed.paper.published.accuracy", lambda *_: Number(12.34))
    run = train(method="fedper", partition_by=way, rounds=1)
    assert execute(["paper", "keep", str(run.path), "--to", str(tmp_path / "kept")]) == 0
    assert execute(["paper", "page", str(tmp_path / "kept")]) == 0
    with (tmp_path / "kept" / "table.csv").open(encoding="utf-8") as file:
        assert next(csv.DictReader(file))["published"][:5] == said


@pytest.mark.parametrize("name", ["README.md", "table.csv", "differences.csv"])
def test_a_page_replaces_no_file_that_is_none(runs: list[Run], tmp_path: Path, name: str) -> None:
    KeptRun.of(runs[2]).write(tmp_path / "project")
    (tmp_path / "project" / name).write_text("mine", encoding="utf-8")
    assert execute(["paper", "page", str(tmp_path / "project")]) == 2
    assert (tmp_path / "project" / name).read_text(encoding="utf-8") == "mine"
    (tmp_path / "project" / name).unlink()
    for _ in range(2):
        assert execute(["paper", "page", str(tmp_path / "project")]) == 0, "and pages are made anew"


def test_damaged_and_empty_folders(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no kept runs; 'xfed paper keep RUN --to"):
        kept_runs(tmp_path)
    home = KeptRun.of(runs[2]).write(tmp_path / "kept")
    (home / "clients.csv").write_text("trained,own 1\n1,x\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"kept run .* cannot be read: could not convert string to float: 'x'"):
        kept_runs(tmp_path / "kept")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alpha": 0.1}, r"(0.1 and 0.3|0.3 and 0.1) as alpha"),
        ({"rounds": 1, "method": "fedavg"}, r"(1 and 2|2 and 1) as rounds"),
        ({"convnet.width": 5}, r"(5 and 4|4 and 5) as width"),
        ({"eval_every": 2}, "one method, its settings and seed in common"),
    ],
)
def test_runs_that_do_not_compare_are_refused(
    train: Callable[..., Run], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    common = {"method": "fedper", "alpha": 0.3, "rounds": 2, "convnet.width": 4, "eval_every": 1}
    for name, values in (("a", common), ("b", common | changes)):
        KeptRun.of(train(name, **values)).write(tmp_path / "kept")
    with pytest.raises(InputError, match=rf"kept runs '\S+' and '\S+' have {said}.*; keep them in folders of"):
        write_page(tmp_path / "kept")
    assert not (tmp_path / "kept" / "README.md").exists()


def test_a_run_that_was_evaluated_on_some_clients_is_not_kept(train: Callable[..., Run]) -> None:
    run = train(method="fedper", eval_clients=3)
    with pytest.raises(InputError, match=r"was evaluated on 3 of \d+ clients, but a run is kept with every client"):
        KeptRun.of(run)


def test_clients_that_are_equally_well_off_are_on_nobodys_side(runs: list[Run], tmp_path: Path) -> None:
    """Accuracies are kept to six digits: 1/3, 1/3, 1/3 and 0, 1/3, 2/3 have the same mean, up to a rounding."""
    for run, exits in ((runs[2], [1 / 3, 1 / 3, 1 / 3]), (runs[4], [0, 1 / 3, 2 / 3])):
        kept = KeptRun.of(run)
        clients = dict.fromkeys(kept.clients, np.tile(np.array(exits), (len(kept.trained), 1)))
        replace(kept, clients=clients).write(tmp_path / "kept")
    write_page(tmp_path / "kept")
    with (tmp_path / "kept" / "differences.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["clients better off"].startswith("0 of ")
    assert float(row["p"]) == 1
    assert row["verdict"] == "not told apart"


def test_single_exit_runs_have_a_page_of_their_own(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = {("Table 2", "digits", "fedavg", None): Number(12.34)}
    monkeypatch.setattr("xfed.paper.published.accuracy", lambda *asked: printed.get(asked))
    folder = tmp_path / "kept"
    for method in ("fedavg", "local"):
        KeptRun.of(train(method, method=method, exits="last")).write(folder)
    write_page(folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "last exit alone, " in text
    assert "| method | averaged | held out | published |" in text
    assert "| 12.34 |" in text
    assert "Published: Table 2 of the paper" in text
    KeptRun.of(train("all", method="fedper")).write(folder)
    with pytest.raises(InputError, match=r"have (all and last|last and all) as exits; keep them in folders"):
        write_page(folder)


def test_tables_and_figures_come_on_one_page_in_the_papers_order(tmp_path: Path) -> None:
    out = tmp_path / "paper"
    out.mkdir()
    (out / "README.md").write_text("mine", encoding="utf-8")
    assert execute(["paper", "run", "matching-latency", "--scale", "tiny", "--out", str(out), "-q"]) == 0
    first = out / "matching-latency-tiny"
    shutil.copytree(first, out / "ablation-tiny")  # Table 5: after Table 4
    shutil.copytree(first, out / "mine-tiny")  # no name of ours
    (first / "more.md").write_text("## More of it\n\n| a |\n", encoding="utf-8")
    assert execute(["paper", "page", str(out)]) == 2, "the page of somebody else stays"
    (out / "README.md").unlink()
    assert execute(["paper", "page", str(out)]) == 0
    text = (out / "README.md").read_text(encoding="utf-8")
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    printed = (first / "table.md").read_text(encoding="utf-8").splitlines()
    assert titles == [printed[0], "## More of it", printed[0]]
    assert set(printed[2:6]) <= set(text.splitlines())
    figures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert figures == ["matching-latency-tiny/figure.svg", "ablation-tiny/figure.svg"]
    assert all((out / figure).is_file() for figure in figures)
