"""Every name runs at scale tiny; labels and published column are there; one value each is recomputed from Parquet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xfed.cli import execute
from xfed.evaluation.traces import ExitTrace
from xfed.paper.catalogue import ARTEFACTS
from xfed.runs.finding import find_runs
from xfed.runs.reader import Run

pytestmark = pytest.mark.slow

Row = Mapping[str, str]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all names, so that they share runs."""
    return tmp_path_factory.mktemp("paper")


def tiny_run(out: Path, model: str, alpha: float = 0.3, **settings: object) -> Run:
    """Find the one run that has these settings."""
    defaults: dict[str, object] = {"exits": "all", "local_kd": "off", "mu": 0.6, "lam": 1.0}
    if settings.get("method") == "xfed":
        defaults |= {
            "schedule": "linear",
            "teacher": "frozen",
            "temperature": 2.0,
            "kd_weight": "sum",
            "mix": "end",
            "evaluated": "mixed",
        }
    wanted = defaults | {"refit": None} | settings

    def fits(run: Run) -> bool:
        e = run.experiment
        own = e.settings.get("method", {})
        plain = {"method": e.method, "exits": e.exits, "local_kd": e.training.local_kd, "refit": e.training.refit}
        ours = {name: plain.get(name, own.get(name, wanted[name])) for name in wanted}
        return e.model == model and e.dealing.alpha == alpha and ours == wanted

    (found,) = [run for run in find_runs([out / "runs"]) if fits(run)]
    return found


def last_metrics(run: Run) -> pd.DataFrame:
    """Read the last evaluation's Parquet file."""
    table: pd.DataFrame = pd.read_parquet(max((run.path / "metrics").glob("*.parquet")))
    return table


def averaged(run: Run) -> float:
    return float(100 * last_metrics(run).groupby("client")["accuracy"].mean().mean())


def of_exit(run: Run, exit: int) -> float:
    table = last_metrics(run)
    return float(100 * table[table["exit"] == exit]["accuracy"].mean())


def under(run: Run, epsilon: float) -> tuple[float, float]:
    """Accuracy (%) and million MACs of a threshold, from the trace's Parquet columns."""
    table = pd.read_parquet(max((run.path / "traces").glob("test-*.parquet")))
    confidence = np.stack(table["own.confidence"].to_list()).astype(np.float64)
    prediction = np.stack(table["own.prediction"].to_list())
    accuracies, costs = [], []
    for _, rows in table.groupby("client").indices.items():
        right = cost = 0.0
        for i in rows:
            j = next((j for j in range(confidence.shape[1] - 1) if confidence[i, j] > epsilon), confidence.shape[1] - 1)
            right += prediction[i, j] == table["label"][i]
            cost += run.exit_macs[j]
        accuracies.append(right / len(rows))
        costs.append(cost / len(rows))
    return 100 * float(np.mean(accuracies)), float(np.mean(costs)) / 1e6


def row(rows: list[Row], **wanted: str) -> Row:
    (found,) = [each for each in rows if all(each[name.replace("_", " ")] == value for name, value in wanted.items())]
    return found


CHECKS: dict[str, Callable[[Path, list[Row]], None]] = {}


def check(name: str) -> Callable[[Callable[[Path, list[Row]], None]], Callable[[Path, list[Row]], None]]:
    def add(function: Callable[[Path, list[Row]], None]) -> Callable[[Path, list[Row]], None]:
        CHECKS[name] = function
        return function

    return add


@check("averaged-accuracy")
def _averaged(out: Path, rows: list[Row]) -> None:
    assert [each["method"] for each in rows][-3:] == ["xfed", "xfed-plus", "majority class"]
    assert len(rows) == 16
    found = row(rows, method="fedrep")
    assert float(found["CIFAR-100 Dir(0.1)"]) == pytest.approx(
        averaged(tiny_run(out, "resnet18", 0.1, method="fedrep"))
    )
    assert (found["published CIFAR-100 Dir(0.1)"], found["published AG News Dir(0.3)"]) == ("59.26", "73.92")


@check("single-exit")
def _single(out: Path, rows: list[Row]) -> None:
    assert len(rows) == 13
    single = tiny_run(out, "convnet", method="ditto", exits="last")
    assert float(row(rows, method="ditto")["CIFAR-10"]) == pytest.approx(of_exit(single, 1))
    early = tiny_run(out, "convnet", method="xfed")
    assert float(row(rows, method="xfed")["CIFAR-10"]) == pytest.approx(under(early, 0.8)[0])
    assert row(rows, method="xfed")["published CIFAR-10"] == "76.61"
    with (out / "single-exit-tiny" / "macs.csv").open(encoding="utf-8") as file:
        macs = row(list(csv.DictReader(file)), data_set="CIFAR-10")
    assert float(macs["X-FED MACs (M)"]) == pytest.approx(under(early, 0.8)[1])
    assert float(macs["static MACs (M)"]) * 1e6 == single.exit_macs[0]
    assert (macs["published static"], macs["published X-FED"], macs["published saved"]) == ("30.39", "16.15", "46.15")


@check("local-distillation")
def _local(out: Path, rows: list[Row]) -> None:
    found = row(rows, method="fedrod", variant="local KD")
    assert float(found["exit 3"]) == pytest.approx(
        of_exit(tiny_run(out, "resnet18", method="fedrod", local_kd="sum"), 3)
    )
    assert found["published exit 3"] == "47.62"
    assert row(rows, method="fedrod", variant="–")["published exit 3"] == "48.27"


@check("matching-latency")
def _matching(out: Path, rows: list[Row]) -> None:
    assert [each["sampled clients"] for each in rows] == ["10", "20", "50", "100", "200"]
    assert [each["published seconds"] for each in rows] == ["0.02", "0.02", "0.05", "0.48", "1.43"]
    assert all(float(each["seconds"]) > 0 for each in rows)


@check("ablation")
def _ablation(out: Path, rows: list[Row]) -> None:
    assert len(rows) == 14
    found = row(rows, data_set="CIFAR-100", variant="KD")
    run = tiny_run(out, "resnet18", method="xfed", schedule="fixed", mu=1e-6)
    assert float(found["exit 4"]) == pytest.approx(of_exit(run, 4))
    assert found["published exit 4"] == "37.51"
    assert row(rows, data_set="CIFAR-100", variant="KD, live teacher")["published exit 4"] == ""


@check("motivation")
def _motivation(out: Path, rows: list[Row]) -> None:
    assert [each["variant"] for each in rows] == ["local", "joint", "joint + local KD", "joint + cross-client KD"]
    assert float(rows[0]["exit 1"]) == pytest.approx(of_exit(tiny_run(out, "resnet18", method="posthoc"), 1))
    assert [each["published exit 4"] for each in rows] == ["", "41.88", "38.33", "53.08"]


@check("per-exit")
def _exits(out: Path, rows: list[Row]) -> None:
    found = row(rows, data_set="CIFAR-100", method="fedpac", exit="exit 2")
    assert float(found["ours"]) == pytest.approx(of_exit(tiny_run(out, "resnet18", method="fedpac"), 2))
    assert (found["published"], found["published in"]) == ("46.54", "Table 3")
    assert row(rows, data_set="AG News", method="xfed", exit="exit 1")["published"] == ""


@check("trade-off")
def _trade_off(out: Path, rows: list[Row]) -> None:
    run = tiny_run(out, "resnet18", method="fedper")
    found = row(rows, data_set="CIFAR-100", method="fedper")
    budget = 3.5e8 / 557.94e6 * run.exit_macs[-1] / 1e6
    reached = [under(run, epsilon / 100) for epsilon in range(101)]
    assert float(found["value"]) == pytest.approx(max(accuracy for accuracy, cost in reached if cost <= budget))
    mine = float(row(rows, data_set="CIFAR-100", method="xfed")["value"])
    assert float(found["X-FED's lead"]) == pytest.approx(mine - float(found["value"]))
    stated = {each["data set"]: each["published lead"] for each in rows if each["method"] == "fedper"}
    assert stated == {
        "CIFAR-10": "0.2 to 5.5", "CIFAR-100": "2.5 to 14.5", "Tiny ImageNet": "2 to 11", "AG News": "0.2 to 2.8",
    }  # fmt: skip


@check("successor")
def _successor(out: Path, rows: list[Row]) -> None:
    assert len(rows) == 4 * 13
    found = row(rows, data_set="CIFAR-10", method="fedper", variant="refit")
    run = tiny_run(out, "convnet", method="fedper", refit=0.03)
    table = pd.read_parquet(max((run.path / "traces").glob("test-*.parquet")))
    predictions = np.stack(table["running.prediction"].to_list())
    right = pd.DataFrame(predictions == table["label"].to_numpy()[:, None]).groupby(table["client"]).mean()
    assert float(found["running answers"]) == pytest.approx(100 * right.to_numpy().mean())
    assert float(found["own answers"]) == pytest.approx(averaged(run))
    steps = [each["variant"] for each in rows if each["method"] == "xfed-plus" and each["data set"] == "CIFAR-10"]
    start = "+ all exits from the start, distillation on repeats"
    assert steps == ["exits apart", "+ newest teachers", "+ prior", start, "+ refit: all of it"]


@check("switches")
def _switches(out: Path, rows: list[Row]) -> None:
    assert len(rows) == 12
    plain = tiny_run(out, "resnet18", method="xfed")
    for variant in ("frozen teacher, τ = 2, sum", "mixed at the end", "last exit mixed"):
        assert float(row(rows, variant=variant)["own answers"]) == pytest.approx(averaged(plain))


@check("teacher-weights")
def _weights(out: Path, rows: list[Row]) -> None:
    run = tiny_run(out, "resnet18", 0.1, method="xfed")
    notes = run.notes(3)
    own = np.diag(notes["teacher_weights"].numpy())
    assert float(row(rows, setting="CIFAR-100 Dir(0.1)")["own weight, last round"]) == pytest.approx(own.mean())
    assert rows[0]["published (approximately)"] == "0.8"


@check("rounds")
def _rounds(out: Path, rows: list[Row]) -> None:
    run = tiny_run(out, "resnet18", method="xfed")
    table = pd.read_parquet(run.path / "metrics" / "round-000002.parquet")
    wanted = 100 * table[table["exit"] == 3]["accuracy"].mean()
    assert float(row(rows, data_set="CIFAR-100", round="2 of 3", exit="exit 3")["ours"]) == pytest.approx(wanted)
    assert row(rows, data_set="CIFAR-100", round="3 of 3", exit="exit 3")["published"] == "53.42"


@check("selection-rate")
def _selection(out: Path, rows: list[Row]) -> None:
    by_name = {each["R(t)"]: float(each["exit 1"]) for each in rows if each["data set"] == "CIFAR-100"}
    fixed = of_exit(tiny_run(out, "resnet18", method="xfed", schedule="fixed"), 1)
    step = of_exit(tiny_run(out, "resnet18", method="xfed", schedule="step"), 1)
    assert (by_name["fixed"], by_name["step"]) == (pytest.approx(fixed), pytest.approx(step))
    worst = min(by_name[name] for name in ("linear", "quadratic", "logarithmic", "step"))
    assert by_name["worst progressive − fixed"] == pytest.approx(worst - fixed)
    assert by_name["published: worst − fixed"] == 2.33


@check("hyperparameters")
def _hyper(out: Path, rows: list[Row]) -> None:
    found = row(rows, data_set="CIFAR-100", setting="λ = 0.4")
    run = tiny_run(out, "resnet18", method="xfed", lam=0.4)
    assert float(found["averaged accuracy"]) == pytest.approx(averaged(run))
    assert [each["published says"] for each in rows][:3] == ["", "best", ""]


@check("exit-threshold")
def _threshold(out: Path, rows: list[Row]) -> None:
    run = tiny_run(out, "resnet18", method="xfed")
    found = row(rows, ε="0.6")
    accuracy, cost = under(run, 0.6)
    assert (float(found["accuracy"]), float(found["MACs (M)"])) == (pytest.approx(accuracy), pytest.approx(cost))
    assert float(found["drop (points)"]) == pytest.approx(of_exit(run, 4) - accuracy)
    assert (found["published drop"], found["published saved"]) == ("2.01", "37.15")
    assert row(rows, ε="0.5")["published drop"] == ""


@check("case-study")
def _case(out: Path, rows: list[Row]) -> None:
    run = tiny_run(out, "resnet18", method="fedper", exits="last")
    trace = ExitTrace.read(max((run.path / "traces").glob("test-*.parquet")))
    right = []
    for own in trace.by_client().values():
        right.append((own.own.prediction[:3, 0] == own.labels[:3]).mean())
    found = row(rows, condition="clean", method="fedper")
    assert float(found["accuracy"]) == pytest.approx(100 * np.mean(right))
    assert (found["published gain"], found["published static / early"]) == ("15.17 to 24.81", "2.05")
    assert row(rows, condition="noise on pixels", method="fedavg")["published static / early"] == "1.99"


@check("communication")
def _communication(out: Path, rows: list[Row]) -> None:
    rounds = pd.read_parquet(tiny_run(out, "resnet18", method="fedper").path / "rounds.parquet")
    ours = pd.read_parquet(tiny_run(out, "resnet18", method="xfed").path / "rounds.parquet")
    found = row(rows, method="xfed")
    more = (ours["bytes_up"].sum() + ours["bytes_down"].sum()) / (rounds["bytes_up"].sum() + rounds["bytes_down"].sum())
    assert float(found["over FedPer (%)"]) == pytest.approx(100 * (more - 1))
    assert found["published over FedPer (%)"] == "0.45"


@check("assumptions")
def _assumptions(out: Path, rows: list[Row]) -> None:
    ours, theirs = (
        pd.read_parquet(tiny_run(out, "resnet18", method=name).path / "rounds.parquet") for name in ("xfed", "scalefl")
    )
    found = row(rows, measured="X-FED / ScaleFL, MACs")
    assert float(found["ours"]) == pytest.approx(ours["macs"].sum() / theirs["macs"].sum())
    assert row(rows, measured="drop (points)")["published"] == "2.01"
    assert {f"exit {j}: correlation" for j in (1, 2, 3)} < {each["measured"] for each in rows}


@pytest.mark.parametrize("name", ARTEFACTS)
def test_name_at_scale_tiny(out: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["paper", "run", name, "--scale", "tiny", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    folder = out / f"{name}-tiny"
    assert "scale tiny" in said
    assert ARTEFACTS[name].place in said
    for ending in ("md", "csv", "tex"):
        assert (folder / f"table.{ending}").is_file()
    for ending in ("md", "tex"):
        text = (folder / f"table.{ending}").read_text(encoding="utf-8")
        assert "ublished" in text
        assert "cale tiny" in text
    assert "scale tiny" in (folder / "figure.svg").read_text(encoding="utf-8")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    with (folder / "table.csv").open(encoding="utf-8") as file:
        rows: list[Row] = list(csv.DictReader(file))
    CHECKS[name](out, rows)


@pytest.mark.parametrize("name", ["ablation", "motivation", "per-exit", "rounds", "selection-rate", "trade-off"])
def test_a_network_with_other_exits_is_not_laid_beside_those_printed(out: Path, name: str) -> None:
    """The paper prints four exits on CIFAR-100; of a network with three, the average alone can be compared."""
    words = ["paper", "run", name, "--scale", "tiny", "--datasets", "cifar100", "--out", str(out / "three")]
    assert execute([*words, "--set", "model=convnet", "--set", "convnet.width=6"]) == 0
    with (out / "three" / f"{name}-tiny" / "table.csv").open(encoding="utf-8") as file:
        rows: list[Row] = list(csv.DictReader(file))
    assert not any("exit 4" in each for each in rows)
    assert not any("published: worst" in text for each in rows for text in each.values())
    for each in rows:
        assert not any(value for column, value in each.items() if "published exit" in column or column == "published")
    if name == "ablation":
        printed = row(rows, variant="KD + TM + SS")["published averaged"]
        assert float(printed) == pytest.approx(50.41, abs=0.01)  # of Table 1, from Table 5's four exits
