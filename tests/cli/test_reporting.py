"""`xfed runs`, `diff`, `sweep`, `report` and `paper` as a person uses them."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests import bits
from tests.bits import vouch
from tests.traces import from_models
from xfed import Run, open_run
from xfed.cli import execute
from xfed.report.differences import differences
from xfed.runs.finding import find_runs

SMALL = ["--clients", "4", "--rounds", "2", "--engine", "serial", "--convnet.width", "4", "--epochs", "1"]


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_runs_lists_newest_first(train: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    older = train("runs/old", method="fedper", rounds=1)
    newer = train("runs/deep/new", rounds=2)
    for found, started in ((older, "2026-01-01T00:00:00+00:00"), (newer, "2026-02-01T00:00:00+00:00")):
        path = found.path / "environment.json"
        noted = found.environment()["started"]
        path.write_text(path.read_text().replace(noted, started))
        vouch(found.path)
    (newer.path / "finished.json").unlink()
    assert execute(["runs"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "digits" in line]
    assert len(lines) == 2
    assert all(text in lines[0] for text in ("new", "xfed", "2 of 2", "stopped"))
    accuracy = older.summary().last
    shown = f"{100 * accuracy.mean:.2f} ± {100 * accuracy.std:.2f}"
    assert all(text in lines[1] for text in ("old", "fedper", "1 of 1", "finished", shown, " d "))


def test_diff_says_settings_and_results(train: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    a, b = train("a", rounds=1), train("b", rounds=1, lr=0.2, xfed={"mu": 0.7})
    found = differences(a, b)
    assert {each.name: (each.first, each.second) for each in found["settings"]} == {
        "lr": (0.05, 0.2),
        "xfed.mu": (0.6, 0.7),
    }
    assert found["surroundings"] == []
    assert "averaged accuracy, last (%)" in {each.name for each in found["results"]}
    assert "bytes up" not in {each.name for each in found["results"]}
    assert execute(["diff", "a", "b"]) == 0
    said = capsys.readouterr().out
    assert "xfed.mu" in said
    assert "no difference in surroundings" in said
    assert execute(["diff", "a", "a"]) == 0
    assert capsys.readouterr().out.count("no difference") == 3


def accuracy_on_calibration_samples(run: Run) -> float:
    """Let the final models answer the calibration samples anew."""
    trace = from_models(run, "calibration")
    right = pd.DataFrame(trace.own.prediction == trace.labels[:, None]).groupby(trace.owners).mean()
    return float(100 * right.mean(axis=1).mean())


def test_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "--methods", "xfed,fedper", "--vary", "xfed.mu=0.3,0.9", "--seeds", "1,2", *SMALL]
    assert execute([*command, "--plan"]) == 0
    assert "6 runs: 0 finished, 6 left, about" in capsys.readouterr().err
    assert execute(command) == 0
    text = Path("runs/sweep/sweep.md").read_text(encoding="utf-8")
    assert "digits, convnet; " in text
    assert "seed 1, 2. Accuracy of the last evaluation" in text
    with Path("runs/sweep/sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["xfed.mu"]) for row in rows] == [("xfed", "0.3"), ("xfed", "0.9"), ("fedper", "–")]
    means, spreads, held_out = [], [], []
    for found in find_runs([Path("runs/sweep")]):
        if found.experiment.settings.get("method", {}).get("mu") == 0.3:
            table = pd.read_parquet(max((found.path / "metrics").glob("*.parquet")))
            by_client = 100 * table.groupby("client")["accuracy"].mean()
            means.append(by_client.mean())
            spreads.append(by_client.std(ddof=0))
            held_out.append(accuracy_on_calibration_samples(found))
    assert len(means) == 2
    assert float(rows[0]["held out (%)"]) == pytest.approx(sum(held_out) / 2)
    first, second = (float(row["held out (%)"]) for row in rows[:2])
    assert [row["best"] for row in rows] == ["●" * (first >= second), "●" * (second >= first), ""]
    assert float(rows[0]["averaged (%)"]) == pytest.approx(sum(means) / 2)
    assert float(rows[0]["averaged (%), std over clients"]) == pytest.approx(sum(spreads) / 2)
    assert float(rows[0]["averaged (%), std over seeds"]) == pytest.approx(abs(means[0] - means[1]) / 2**0.5)
    capsys.readouterr()
    assert execute([*command, "--plan"]) == 0
    assert capsys.readouterr().err == "6 runs: 6 finished\n"


def test_a_sweep_chooses_among_points_on_the_same_data() -> None:
    command = ["sweep", "--methods", "fedper", "--vary", "alpha=0.1,10", "--vary", "lr=0.05,1e-6", *SMALL]
    assert execute([*command, "--out", "runs/two"]) == 0
    with Path("runs/two/sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for alpha in ("0.1", "10"):
        rivals = [row for row in rows if row["alpha"] == alpha]
        most = max(float(row["held out (%)"]) for row in rivals)
        assert len(rivals) == 2
        assert [row["best"] == "●" for row in rivals] == [float(row["held out (%)"]) == most for row in rivals]


def test_report_takes_folders(train: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    train("runs/a", rounds=1)
    (train("runs/b", rounds=1, method="fedper").path / "finished.json").unlink()
    assert execute(["report", "runs", "-o", "page.html"]) == 0
    assert "1 run in page.html" in capsys.readouterr().out
    assert execute(["report", "runs/a", "runs/b", "-o", "page.html"]) == 0
    assert "2 runs in page.html" in capsys.readouterr().out
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_paper_lists_every_table_and_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["paper", "list"]) == 0
    said = capsys.readouterr().out
    for place in [f"Table {k}" for k in range(1, 6)] + [f"Figure {k}" for k in (2, 6, 7, 8, 9, 10, 11, 12, 13)]:
        assert f" {place} " in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["paper", "run", "tabel"], ["table or figure", "'tabel'", "averaged-accuracy"]),
        (["paper", "run", "motivation", "--scale", "huge"], ["huge", "full", "small", "tiny"]),
        (["paper", "run", "motivation", "--datasets", "mnist"], ["'mnist'", "cifar100"]),
        (["paper", "run", "motivation", "--datasets", "agnews"], ["'agnews'", "allowed: cifar100"]),
        (["paper", "run", "motivation", "--methods", "ditto"], ["'ditto'", "fedper", "posthoc"]),
        (["paper", "run", "motivation", "--seeds", "one"], ["--seeds", "'one'"]),
        (["runs", "nowhere"], ["'nowhere'", "no folder"]),
        (["runs", "."], ["no run under"]),
        (["diff", "a", "b"], ["'a'", "not a run directory"]),
        (["report", "."], ["no finished run"]),
        (["report", "nowhere"], ["'nowhere'", "not a run directory"]),
        (["sweep", "--vary", "alpha"], ["--vary 'alpha'", "key=value,value"]),
        (["sweep", "--vary", "alfa=1,2"], ["'alfa'", "alpha"]),
        (["run", "--track", "comet"], ["track", "tensorboard", "mlflow", "wandb"]),
        (["show", "."], ["no run under '.'"]),
        (["plot", "."], ["no run under '.'"]),
        (["run", "-q", "-v"], ["--quiet", "--verbose"]),
    ],
)
def test_bad_input(arguments: list[str], named: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("xfed: ")
    assert said.count("\n") == 1
    for text in named:
        assert text in said


@pytest.mark.slow
def test_a_killed_paper_run_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    command = ["paper", "run", "motivation", "--scale", "tiny", "--out"]
    process = subprocess.Popen([sys.executable, "-m", "xfed", *command, "killed"], stderr=subprocess.DEVNULL)
    runs = tmp_path / "killed" / "runs"
    for _ in range(1200):
        if len(list(runs.glob("*/finished.json"))) >= 2 and len(list(runs.glob("*/settings.yaml"))) >= 3:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = [path.parent for path in runs.glob("*/finished.json")]
    assert len(finished) >= 2
    before = {path: path.stat().st_mtime_ns for root in finished for path in root.rglob("*") if path.is_file()}
    assert execute([*command, "killed"]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert execute([*command, "straight"]) == 0
    for name in ("table.md", "table.csv", "table.tex", "figure.svg"):
        ours, straight = (tmp_path / out / "motivation-tiny" / name for out in ("killed", "straight"))
        assert ours.read_bytes() == straight.read_bytes()
    for root in sorted((tmp_path / "straight" / "runs").iterdir()):
        assert bits.differences(open_run(runs / root.name), open_run(root)) == []
