"""Figures of early-exit inference: 7 (trade-off), 12 (threshold) and 13 (case study)."""

from __future__ import annotations

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from xfed.inference.case_study import Condition, Measured, Setup, case_study
from xfed.paper import published
from xfed.paper.accuracy import BEST, EARLY
from xfed.paper.artefact import Product, Results
from xfed.paper.measuring import GRID, accuracy_within, at_threshold, cost_for, curve
from xfed.paper.scales import TASKS, Choice, Task, Wanted
from xfed.report.case_study import lines as case_lines
from xfed.report.drawing import bars, lines
from xfed.report.sheet import Cell, Number, accuracy, over_seeds
from xfed.runs.reader import Run

Numbers = NDArray[np.float64]

SHOWN = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
FOLLOWED = (0.4, 0.6, 0.8)
"""Thresholds whose cost is followed over rounds."""

# Figure 7


def trade_off_wanted(choice: Choice) -> list[Wanted]:
    """X-FED, the five best baselines and X-FED+, Dir(0.3)."""
    return [Wanted(dataset, 0.3, method) for dataset in TASKS for method in (*BEST, "xfed-plus")]


def trade_off(results: Results) -> Product:
    """Sweep the threshold, and read off what the paper reads off."""
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.datasets))
    for panel, dataset in zip(drawing.panels, results.datasets, strict=True):
        task, claim = TASKS[dataset], published.TRADE_OFF[dataset]
        curves = {}
        for wanted, runs in results.on(dataset).items():
            found = [curve(run) for run in runs]
            costs, accuracies = (np.mean([each[k] for each in found], axis=0) for k in (0, 1))
            curves[wanted.method] = (costs / 1e6, accuracies)
        read = {method: _read_off(*points, claim, task) for method, points in curves.items()}
        for method, (costs, accuracies) in curves.items():
            value, mine = read[method], read.get("xfed")
            lead = None
            if method not in EARLY and value is not None and mine:
                lead = Number(mine - value if claim.macs else value / mine - 1)
            stated = f"{claim.low:g} to {claim.high:g}" if method not in EARLY else ""
            shown: Cell = "not reached" if value is None else Number(value)
            full = [Number(float(accuracies[-1])), Number(float(costs[-1]))]
            rows.append([task.title, method, _asked(claim, task), shown, lead, stated, *full])
        lines(panel, curves, "mean MACs per sample (million)", "accuracy (%)")
        panel.set_title(task.title, fontsize=9)
    header = [
        "data set", "method", "read off", "value", "X-FED's lead", "published lead", "full accuracy", "full MACs (M)",
    ]  # fmt: skip
    text = (
        f"Thresholds ε from 0 to 1 in steps of {GRID[1]:g} on test samples; mean over clients; exact MACs. Lead: "
        "points of accuracy at equal MACs, or how many times its MACs another needs more. Published: Section 5.2."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def _asked(claim: published.Claim, task: Task) -> str:
    if claim.macs is None:
        return f"million MACs for {claim.accuracy:g} %"
    return f"accuracy (%) at {claim.macs / task.macs:.1%} of the full MACs (paper: {claim.macs:.2g})"


def _read_off(costs: Numbers, accuracies: Numbers, claim: published.Claim, task: Task) -> float | None:
    """Read a curve off where the paper does; its budget counts as a share of its full model."""
    if claim.macs is not None:
        return accuracy_within(costs, accuracies, claim.macs / task.macs * float(costs[-1]))
    assert claim.accuracy is not None
    return cost_for(costs, accuracies, claim.accuracy)


# Figure 12


def threshold_wanted(choice: Choice) -> list[Wanted]:
    """X-FED alone."""
    return [Wanted("cifar100", 0.3, "xfed")]


def threshold(results: Results) -> Product:
    """Show accuracy and MACs by threshold, and how MACs fall as rounds go by."""
    ((_, runs),) = results.runs.items()
    last = accuracy(runs, len(runs[0].exit_macs) - 1)
    full = runs[0].exit_macs[-1] / 1e6
    rows: list[list[Cell]] = []
    for epsilon in SHOWN:
        reached, cost = at_threshold(runs, epsilon)
        stated = epsilon == published.THRESHOLD
        rows.append(
            [
                f"{epsilon:g}", reached, Number(last.value - reached.value),
                Number(published.DROP) if stated else None, cost, Number(100 * (1 - cost.value / full)),
                Number(published.SAVING) if stated else None,
            ]
        )  # fmt: skip
    header = ["ε", "accuracy", "drop (points)", "published drop", "MACs (M)", "saved (%)", "published saved"]
    by_round = {f"ε = {epsilon:g}": _over_rounds(runs[0], epsilon) for epsilon in FOLLOWED}
    drawing = results.drawing(2)
    costs, accuracies = (np.mean([curve(run)[k] for run in runs], axis=0) for k in (0, 1))
    left, right = drawing.panels
    lines(left, {"accuracy": (GRID.tolist(), accuracies.tolist())}, "threshold ε", "accuracy (%)")
    beside = left.twinx()
    beside.plot(GRID, costs / 1e6, color="0.4", linestyle=":", label="MACs")
    beside.set_ylabel("MACs per sample (million, dotted)")
    lines(right, by_round, "round", "MACs per sample (million)")
    text = (
        "Accuracy in %: mean ± std over clients of test samples; drop: below the last exit; saved: of the network with "
        "all its exits. Published: Section 5.4.5; Table 2's MACs of the same network say 46.15 %."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def _over_rounds(run: Run, epsilon: float) -> tuple[list[float], list[float]]:
    rounds = [each.round for each in run.evaluations() if run.directory.trace("test", each.round).is_file()]
    place = round(100 * epsilon)
    return [float(each) for each in rounds], [float(curve(run, each)[0][place]) / 1e6 for each in rounds]


# Figure 13


def case_wanted(choice: Choice) -> list[Wanted]:
    """X-FED with its exits, FedAvg and FedPer as static models."""
    static = (("exits", "last"),)
    return [
        Wanted("cifar100", 0.3, "xfed"),
        Wanted("cifar100", 0.3, "fedavg", "single exit", static),
        Wanted("cifar100", 0.3, "fedper", "single exit", static),
    ]


def case(results: Results) -> Product:
    """Time the models sample by sample on the first ten clients, seed by seed."""
    early, *static = results.runs.values()
    tiny = results.choice.scale == "tiny"
    measured: list[list[Measured]] = []
    for seed, run in enumerate(early):
        clients = tuple(range(min(10, run.experiment.dealing.clients)))
        setup = Setup(clients, samples=3 if tiny else None, repetitions=1 if tiny else 3)
        measured.append(list(case_study(run, [group[seed] for group in static], setup)))
    rows: list[list[Cell]] = []
    drawing = results.drawing(2)
    left, right = drawing.panels
    by_seed = [case_lines(each) for each in measured]
    conditions = [each for each in get_args(Condition) if any(line.condition == each for line in by_seed[0])]
    shown: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for same in zip(*by_seed, strict=True):
        line = same[0]
        number = over_seeds([100 * each.accuracy for each in same], [100 * each.accuracy_std for each in same])
        latency = over_seeds([each.latency for each in same], [each.latency_std for each in same])
        low, high, times = published.CASE_STUDY["clean" if line.condition == "clean" else "noise"]
        ratio = None if line.early else Number(float(np.mean([each.ratio for each in same])))
        gain = None
        if not line.early:
            mine = [next(e for e in lines_ if e.condition == line.condition and e.early) for lines_ in by_seed]
            pairs = zip(mine, same, strict=True)
            gain = Number(float(np.mean([100 * (own.accuracy - other.accuracy) for own, other in pairs])))
        rows.append(
            [
                line.condition, line.method, number, gain, None if line.early else f"{low:g} to {high:g}", latency,
                ratio, None if line.early else Number(times),
            ]
        )  # fmt: skip
        accuracies, latencies = shown.setdefault(line.method, ([], []))
        accuracies.append(number.value)
        latencies.append(latency.value)
    bars(left, conditions, {name: values[0] for name, values in shown.items()})
    bars(right, conditions, {name: values[1] for name, values in shown.items()})
    left.set_ylabel("accuracy (%)")
    right.set_ylabel("latency (ms per sample)")
    header = [
        "condition", "method", "accuracy", "X-FED's gain", "published gain", "latency (ms)", "static / early",
        "published static / early",
    ]  # fmt: skip
    text = (
        "ε = 0.5, batch 1, one thread, this machine; mean ± std over the first ten clients. Noise: Gaussian, σ = 0.1, "
        "on pixels or on normalised inputs, as the paper does not say which. Published: Section 5.5, on a Jetson Nano; "
        "gains over FedPer and FedAvg, lowest to highest."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})
