"""`xfed calibrate` and `xfed case-study` as a person uses them."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bits import vouch
from tests.conftest import SAMPLED, tiny
from tests.traces import from_models
from xfed import Run, open_run, run
from xfed.calibration.risk import RiskLimit
from xfed.cli import execute
from xfed.runs.directory import RunDirectory
from xfed_runtime.policy import Policy, simulate

SHAPE = {"rounds": 2, "eval_every": 1, "clients": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods on one partition."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("xfed", "fedavg", "fedper"):
        run(tiny(out=folder / method, method=method, **SHAPE), progress=False)
    return folder


@pytest.fixture
def trained(runs: Path, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return Path(shutil.copytree(runs / "xfed", tmp_path / "xfed"))


def policies(folder: Path) -> dict[str, Policy]:
    return {path.name: Policy.read(path) for path in sorted(folder.glob("*.json"))}


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_budget_for_each_client(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["calibrate", str(trained), "--budget", "60%"]) == 0
    shown = capsys.readouterr().out
    assert "calibration: expected" in shown
    assert "test: reported" in shown
    found = policies(trained / "policies")
    assert list(found) == [f"client-{client:06d}.json" for client in range(4)]
    macs = np.array(open_run(trained).exit_macs)
    trace = open_run(trained).trace("calibration", 2)
    for client, policy in enumerate(found.values()):
        own = trace.of_client(client)
        taken = simulate(policy, own.own)
        assert macs[taken].mean() <= 0.6 * macs[-1]
        right = own.own.prediction == own.labels[:, None]
        cheaper = [
            right[np.arange(len(own)), other].mean()
            for other in (simulate(Policy("confidence", threshold=t / 200), own.own) for t in range(201))
            if macs[other].mean() <= 0.6 * macs[-1]
        ]
        assert right[np.arange(len(own)), taken].mean() >= max(cheaper)


def test_policies_answer_as_the_run_does(train: Callable[..., Run], tmp_path: Path) -> None:
    run = train(answers="running")
    for wish, answer in ([], "running"), (["--answer", "own"], "own"):
        assert execute(["calibrate", str(run.path), "--budget", "70%", *wish, "-o", str(tmp_path / answer)]) == 0
        assert {policy.answer for policy in policies(tmp_path / answer).values()} == {answer}


def test_every_way_to_choose(trained: Path, tmp_path: Path) -> None:
    device = tmp_path / "device.json"
    times = {"exits_ms": [1.0, 2.0, 3.0], "exits_cpu_ms": [1.0, 2.0, 3.0]}
    device.write_text(json.dumps({"device": "board", "runtime": "none", "threads": 1, "repetitions": 1, **times}))
    macs = open_run(trained).exit_macs
    for number, options in enumerate(
        [
            ["--budget", str(macs[1]), "--shared", "--thresholds", "geometric"],
            ["--budget", "70%", "--shared", "--thresholds", "pareto", "--answer", "running"],
            ["--latency", "2ms", "--device", str(device), "--shared", "--signal", "entropy"],
            ["--max-drop", "1%", "--shared", "--signal", "margin"],
            ["--max-drop", "1%", "--shared", "--device", str(device)],
            ["--risk", "0.3", "--delta", "0.2", "--shared"],
            ["--deadline", "2.4ms", "--quantile", "0.5", "--device", str(device)],
        ]
    ):
        out = tmp_path / str(number)
        assert execute(["calibrate", str(trained), *options, "-o", str(out)]) == 0
        assert list(policies(out)) == ["shared.json"]
    assert policies(tmp_path / "1")["shared.json"].answer == "running"
    assert policies(tmp_path / "0")["shared.json"].answer == "own"
    assert policies(tmp_path / "2")["shared.json"].kind == "entropy"
    anytime = policies(tmp_path / "6")["shared.json"]
    assert (anytime.kind, anytime.deadline_ms, anytime.quantile) == ("anytime", 2.4, 0.5)
    with (tmp_path / "6" / "calibration.csv").open(newline="") as stream:
        assert {row["reported_exit_2"] for row in csv.DictReader(stream)} == {"1.0"}


def test_a_sample_of_clients_counts_for_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(tiny(out=tmp_path / "sampled", **SAMPLED), progress=False)
    assert execute(["calibrate", str(found.path), "--budget", "100%", "--wide"]) == 0
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if "test: reported" in line)
    assert f"{found.summary().last.exits[-1]:.2%}" in line
    assert "a sample of clients, each counting for the clients it stands for" in " ".join(shown.split())


def test_deadlines_that_cannot_be_kept(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = tmp_path / "device.json"
    times = {"exits_ms": [1.0, 2.0, 3.0], "exits_cpu_ms": [1.0, 2.0, 3.0], "exits_p95_ms": [4.0, 5.0, 6.0]}
    device.write_text(json.dumps({"device": "board", "runtime": "none", "threads": 1, "repetitions": 1, **times}))
    for options, sentence in (
        ("--deadline 3ms", "deadline needs device"),
        (f"--deadline 3ms --device {device}", "a deadline of 3 ms is not kept by exit 1 alone, which 95% of inputs"),
        (f"--deadline 9ms --quantile 0.99 --device {device}", "no latencies for the quantile 0.99"),
        (f"--deadline soon --device {device}", "deadline is 'soon'; allowed: milliseconds such as 5ms"),
    ):
        assert execute(["calibrate", str(trained), *options.split()]) == 2
        assert sentence in told(capsys)


def test_a_risk_says_who_has_no_guarantee(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [len(each) for each in open_run(trained).trace("calibration", 2).by_client().values()]
    limit = RiskLimit(0.03, 0.1)
    small = [size for size in sizes if size < limit.samples]
    assert small, sizes
    assert execute(["calibrate", str(trained), "--risk", "0.03"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    if sum(small) < limit.samples:
        assert f"nothing for {len(small)}" in shown
    else:
        assert f"for {len(small)} clients together" in shown


def test_without_the_test_trace_the_same_policies(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["calibrate", str(trained), "--budget", "60%"]) == 0
    before = policies(trained / "policies")
    for path in (trained / "traces").glob("test-*"):
        path.unlink()
    vouch(trained)
    capsys.readouterr()
    assert execute(["calibrate", str(trained), "--budget", "60%"]) == 0
    shown = capsys.readouterr().out
    assert "the run has no test trace: expected figures only" in shown
    assert "reported" not in shown
    assert policies(trained / "policies") == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("", "needs exactly one of budget, latency, deadline, max_drop and risk"),
        ("--budget 60% --risk 0.1", "needs exactly one of"),
        ("--budget 1%", "below what leaving at exit 1 costs"),
        ("--budget much", "budget is 'much'; allowed: a share such as 60%, or MACs such as 3.5e8"),
        ("--budget nan", "budget is 'nan'"),
        ("--max-drop -1%", "max_drop is '-1%'; allowed: a percentage such as 1%"),
        ("--latency 5ms", "latency needs device"),
        ("--latency 5ms --device missing.json", "'missing.json' cannot be read"),
        ("--risk 1.5", "risk is 1.5; allowed: numbers between 0 and 1"),
        ("--risk 0.1 --thresholds pareto", "thresholds pareto does not go with it"),
        ("--risk 0.0001", "at least 23025 are needed"),
        ("--budget 60% --signal luck", "luck"),
    ],
)
def test_bad_input(options: str, sentence: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["calibrate", str(trained), *options.split()]) == 2
    assert sentence in told(capsys)
    assert not (trained / "policies").exists()


def test_runs_that_cannot_be_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Path) -> None:
    changes: dict[str, dict[str, Any]] = {"none": {"calibration": 0.0}, "single": {"exits": "last", "method": "fedavg"}}
    for name, change in changes.items():
        run(tiny(out=tmp_path / name, **(SHAPE | {"rounds": 1} | change)), progress=False)
    assert execute(["calibrate", str(tmp_path / "none"), "--budget", "60%"]) == 2
    assert "its calibration share is 0" in told(capsys)
    assert execute(["calibrate", str(tmp_path / "single"), "--budget", "60%"]) == 2
    assert "has a single exit; there is nothing to calibrate" in told(capsys)
    path = RunDirectory(trained).latest_trace("calibration")
    assert path is not None
    path.unlink()
    vouch(trained)
    assert execute(["calibrate", str(trained), "--budget", "60%"]) == 2
    assert "has no calibration trace" in told(capsys)


@pytest.mark.parametrize("of", ["calibration", "test"])
def test_traces_of_a_run_equal_those_of_its_saved_models(of: Any, runs: Path) -> None:
    opened = open_run(runs / "xfed")
    recorded = opened.trace(of, 2)
    again = from_models(opened, of)
    assert recorded.labels.tolist() == again.labels.tolist()
    for answer in ("own", "running"):
        one, other = recorded.signals(answer), again.signals(answer)
        assert one.confidence == pytest.approx(other.confidence, abs=1e-5)
        assert (one.prediction == other.prediction).mean() > 0.99, "but for ties in the last bits"


def test_case_study(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "study"
    static = ["--static", str(runs / "fedavg"), "--static", str(runs / "fedper")]
    options = ["--clients", "0,2", "--samples", "6", "--repetitions", "1", "--epsilon", "0.4", "-o", str(out)]
    assert execute(["case-study", str(runs / "xfed"), *static, *options]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["case-study.csv", "case-study.md", "case-study.png"]
    with (out / "case-study.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3 * 2 * 3
    opened = {name: open_run(runs / name) for name in ("xfed", "fedavg")}
    for row in rows:
        if row["condition"] == "clean" and row["method"] in opened:
            trace = open_run(runs / row["method"]).trace("test", 2).of_client(int(row["client"]))
            policy = Policy("confidence", threshold=0.4 if row["method"] == "xfed" else 1.0)
            taken = simulate(policy, trace.own)[:6]
            right = [trace.own.prediction[i, j] == trace.labels[i] for i, j in enumerate(taken)]
            assert float(row["accuracy"]) == pytest.approx(np.mean(right))
    table = (out / "case-study.md").read_text()
    assert "| noise on pixels | fedper |" in table
    assert table.count("×") == 6, "two static models under three conditions"


def test_case_study_refuses_what_does_not_compare(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tiny(out=tmp_path / "other", method="fedavg", **(SHAPE | {"rounds": 1, "seed": 2})), progress=False)
    early, static = str(runs / "xfed"), str(runs / "fedavg")
    for arguments, sentence in (
        ([early, "--static", str(tmp_path / "other"), "--clients", "0"], "on different samples"),
        ([early, "--static", static, "--clients", "0-7"], "the run has clients 0 to 3"),
        ([early, "--static", early, "--clients", "0"], "allowed: each once"),
        ([early, "--static", static, "--epsilon", "2", "--clients", "0"], "--epsilon is 2"),
        ([early, "--clients", "0"], "--static"),
    ):
        assert execute(["case-study", *arguments, "-o", str(tmp_path / "study")]) == 2
        assert sentence in told(capsys)
    assert not (tmp_path / "study").exists()
