"""Figures and tables of training: 8 (weights), 9 (rounds), 10 (R(t)), 11 (μ, λ), Table 4, traffic and assumptions."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xfed.algorithms.common.matching import cosines, match_teachers
from xfed.paper import published
from xfed.paper.artefact import Product, Results
from xfed.paper.measuring import at_threshold
from xfed.paper.scales import TASKS, Choice, Wanted
from xfed.report.assumptions import heterogeneity, shallow_exits, teacher_weights
from xfed.report.drawing import bars, heat_map, lines
from xfed.report.sheet import Cell, Number, accuracy, over_seeds
from xfed.runs.reader import Run

BOTH = ("cifar100", "tiny-imagenet")
SCHEDULES = ("linear", "fixed", "quadratic", "logarithmic", "step")
MUS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LAMBDAS = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6)
LAST_EXIT_NUMBERS = 51_300
"""Numbers in the last exit of ResNet-18 for 100 classes."""
REPETITIONS = 3

# Table 4


def no_runs(choice: Choice) -> list[Wanted]:
    """Need none."""
    return []


def matching(results: Results) -> Product:
    """Time cosines and weights for one round's participants."""
    rows: list[list[Cell]] = []
    ours = []
    generator = np.random.default_rng(0)
    for sampled, theirs in published.MATCHING_SECONDS.items():
        updates = generator.normal(size=(sampled, LAST_EXIT_NUMBERS))
        seconds = []
        for _ in range(REPETITIONS):
            started = time.perf_counter()
            match_teachers(cosines(updates, updates, range(sampled), range(sampled)), 0.6)
            seconds.append(time.perf_counter() - started)
        ours.append(float(np.median(seconds)))
        rows.append([str(sampled), Number(ours[-1], digits=5), Number(theirs)])
    drawing = results.drawing(1)
    (panel,) = drawing.panels
    sizes = list(published.MATCHING_SECONDS)
    curves = {"ours": (sizes, ours), "published": (sizes, list(published.MATCHING_SECONDS.values()))}
    lines(panel, curves, "sampled clients", "seconds")
    panel.set_yscale("log")
    header = ["sampled clients", "seconds", "published seconds"]
    text = (
        f"Median of {REPETITIONS}, on this machine, at every scale alike: cosines between last exits of "
        f"{LAST_EXIT_NUMBERS:,} numbers, and the weights of all students. Published: Table 4."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


# Figure 8


def weights_wanted(choice: Choice) -> list[Wanted]:
    """X-FED under both skews."""
    return [Wanted("cifar100", alpha, "xfed") for alpha in (0.3, 0.1)]


def weights(results: Results) -> Product:
    """Draw the last round's teacher weights, and tell a client's own over the rounds."""
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.runs))
    for panel, (wanted, runs) in zip(drawing.panels, results, strict=True):
        by_run = [[own for each in _noted(run) if len(own := _own(run, each))] for run in runs]
        last = [own[-1].mean() for own in by_run]
        everywhere = [np.concatenate(own).mean() for own in by_run]
        spread = [own[-1].std() for own in by_run]
        number = Number(float(np.mean(last)), float(np.mean(spread)), over_seeds(last).seeds)
        title = f"{TASKS[wanted.dataset].title} Dir({wanted.alpha:g})"
        rows.append([title, number, Number(float(np.mean(everywhere))), Number(published.OWN_WEIGHT, digits=1)])
        matrix, students, teachers = teacher_weights(runs[0].notes(_noted(runs[0])[-1]))
        heat_map(panel, matrix, teachers.tolist(), students.tolist())
        panel.set_title(f"{title}, last round", fontsize=9)
        panel.set_xlabel("teacher")
        panel.set_ylabel("student")
    header = ["setting", "own weight, last round", "own weight, all rounds", "published (approximately)"]
    text = "Weight of a client's own last exit in its teacher: mean ± std over participants. Published: Section 5.3.4."
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def _noted(run: Run) -> list[int]:
    return [r for r in range(1, run.experiment.training.rounds + 1) if "teacher_weights" in run.notes(r)]


def _own(run: Run, round: int) -> NDArray[np.float64]:
    matrix, students, teachers = teacher_weights(run.notes(round))
    return np.asarray(matrix[students[:, None] == teachers[None, :]])


# Figure 9


def rounds_wanted(choice: Choice) -> list[Wanted]:
    """X-FED alone."""
    return [Wanted(dataset, 0.3, "xfed") for dataset in BOTH]


def rounds(results: Results) -> Product:
    """Draw each exit's accuracy over rounds, and tell it at the quarters."""
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.runs))
    for panel, (wanted, runs) in zip(drawing.panels, results, strict=True):
        found = [run.evaluations() for run in runs]
        across = [each.round for each in found[0]]
        values = 100 * np.mean([[each.exits for each in one] for one in found], axis=0)
        curves = {f"exit {j + 1}": (across, values[:, j]) for j in range(values.shape[1])}
        lines(panel, curves, "round", "accuracy (%)")
        panel.set_title(TASKS[wanted.dataset].title, fontsize=9)
        total = runs[0].experiment.training.rounds
        for place in dict.fromkeys(int(np.argmin(np.abs(np.array(across) - total * q / 4))) for q in (1, 2, 3, 4)):
            for j in range(values.shape[1]):
                at_end = across[place] == total
                theirs = published.per_exit(wanted.dataset, "xfed", j, values.shape[1])[0] if at_end else None
                row: list[Cell] = [TASKS[wanted.dataset].title, f"{across[place]} of {total}", f"exit {j + 1}"]
                rows.append([*row, Number(float(values[place, j])), theirs])
    header = ["data set", "round", "exit", "ours", "published"]
    text = "Accuracy in %, mean over clients, at evaluated rounds nearest to the quarters. Published: Table 5, the end."
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


# Figures 10 and 11


def schedules_wanted(choice: Choice) -> list[Wanted]:
    """X-FED with every schedule."""
    return [Wanted(dataset, 0.3, "xfed", name, (("xfed.schedule", name),)) for dataset in BOTH for name in SCHEDULES]


def schedules(results: Results) -> Product:
    """Compare schedules by exit, and the worst progressive one with `fixed`."""
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.datasets), width=6.5)
    most = max(len(runs[0].exit_macs) for _, runs in results)
    for panel, dataset in zip(drawing.panels, results.datasets, strict=True):
        title = TASKS[dataset].title
        ours: dict[str, list[float | None]] = {}
        for wanted, runs in results.on(dataset).items():
            numbers = [accuracy(runs, j) for j in range(len(runs[0].exit_macs))]
            rows.append([title, wanted.variant, *numbers])
            ours[wanted.variant] = [number.value for number in numbers]
        progressive = np.array([values for name, values in ours.items() if name != "fixed"], dtype=np.float64)
        margins = progressive.min(axis=0) - np.array(ours["fixed"], dtype=np.float64)
        rows.append([title, "worst progressive − fixed", *(Number(float(each)) for each in margins)])
        if len(margins) == published.EXITS[dataset]:
            rows.append([title, "published: worst − fixed", *map(Number, published.SCHEDULE_MARGINS[dataset])])
        bars(panel, [f"exit {j + 1}" for j in range(most)], ours)
        panel.set_title(title, fontsize=9)
        panel.set_ylabel("accuracy (%)")
    header = ["data set", "R(t)", *(f"exit {j + 1}" for j in range(most))]
    text = (
        "Accuracy in %, last evaluation: mean ± std over clients; margins in points. Published, in rows: Section 5.4.3."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def hyper_wanted(choice: Choice) -> list[Wanted]:
    """X-FED over μ and over λ; tests take three values of each."""
    step = 3 if choice.scale == "tiny" else 1
    found = []
    for dataset in BOTH:
        found += [Wanted(dataset, 0.3, "xfed", f"μ = {mu:g}", (("xfed.mu", mu),)) for mu in MUS[::step]]
        found += [Wanted(dataset, 0.3, "xfed", f"λ = {lam:g}", (("xfed.lam", lam),)) for lam in LAMBDAS[::step]]
    return found


def hyper(results: Results) -> Product:
    """Follow averaged accuracy along μ and along λ."""
    rows: list[list[Cell]] = []
    drawing = results.drawing(2 * len(results.datasets))
    panels = iter(drawing.panels)
    for dataset in results.datasets:
        for symbol in "μλ":
            chosen = {w: r for w, r in results.on(dataset).items() if w.variant.startswith(symbol)}
            numbers = {float(w.variant.split("= ")[1]): accuracy(r) for w, r in chosen.items()}
            best = max(numbers, key=lambda value: numbers[value].value)
            for value, number in numbers.items():
                stated = symbol == "μ" and published.BEST_MU[0] <= value <= published.BEST_MU[1]
                says = "best" if stated else "robust" if symbol == "λ" else ""
                row: list[Cell] = [TASKS[dataset].title, f"{symbol} = {value:g}", number]
                rows.append([*row, "best" if value == best else "", says])
            panel = next(panels)
            curve = (list(numbers), [number.value for number in numbers.values()])
            lines(panel, {"X-FED": curve}, symbol, "averaged accuracy (%)")
            if symbol == "μ":
                panel.axvspan(*published.BEST_MU, color="0.85", zorder=0, label="published: best")
                panel.legend(fontsize=7, frameon=False)
            panel.set_title(TASKS[dataset].title, fontsize=9)
    header = ["data set", "setting", "averaged accuracy", "ours says", "published says"]
    text = (
        "Accuracy in %, last evaluation, averaged over exits: mean ± std over clients. Published: Section 5.4.4, which "
        "prints no numbers: best for μ from 0.6 to 0.8, robust for λ from 0.4 to 1.6."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


# Traffic


def traffic_wanted(choice: Choice) -> list[Wanted]:
    """X-FED, a classifier-based method, and the full model."""
    return [Wanted("cifar100", 0.3, method) for method in ("xfed", "fedper", "fedavg")]


def traffic(results: Results) -> Product:
    """Compare the bytes of a client's messages in a round."""
    sizes = {wanted.method: _traffic(runs[0]) for wanted, runs in results}
    base = sum(sizes["fedper"]) if "fedper" in sizes else None
    rows: list[list[Cell]] = []
    for method, (down, up) in sizes.items():
        more = None if base is None else Number(100 * ((down + up) / base - 1))
        theirs = Number(published.EXTRA_TRAFFIC) if method == "xfed" else None
        rows.append([method, Number(down / 1000, digits=3), Number(up / 1000, digits=3), more, theirs])
    drawing = results.drawing(1)
    (panel,) = drawing.panels
    bars(
        panel, list(sizes), {"down": [d / 1000 for d, _ in sizes.values()], "up": [u / 1000 for _, u in sizes.values()]}
    )
    panel.set_ylabel("kB per client and round")
    header = ["method", "down (kB)", "up (kB)", "over FedPer (%)", "published over FedPer (%)"]
    text = "Bytes of real messages, mean per client and round. Published: Section 4.5, for the full ResNet-18."
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def _traffic(run: Run) -> tuple[float, float]:
    records = run.records()
    down = float(np.mean([record.bytes_down / record.clients for record in records]))
    return down, float(np.mean([record.bytes_up / record.replies for record in records]))


# Assumptions


def assumptions_wanted(choice: Choice) -> list[Wanted]:
    """X-FED, and ScaleFL for the cost on a client."""
    return [Wanted("cifar100", 0.3, "xfed"), Wanted("cifar100", 0.3, "scalefl")]


def assumptions(results: Results) -> Product:
    """Measure what the paper takes for granted."""
    by_method = {wanted.method: runs for wanted, runs in results}
    rows: list[list[Cell]] = []
    drawing = results.drawing(1)
    (panel,) = drawing.panels
    runs: Sequence[Run] = by_method.get("xfed", ())
    if runs:
        shallow = [shallow_exits(run) for run in runs]
        for same in zip(*shallow, strict=True):
            name = f"exit {same[0].exit + 1}"
            stands = "last exit's similarity stands in for a shallow exit's (Section 4.2)"
            rows.append([stands, f"{name}: correlation", over_seeds([e.correlation for e in same]), None])
            rows.append([stands, f"{name}: mean |difference|", over_seeds([e.difference for e in same]), None])
            one = "one weight vector per client for all its exits (Section 4.3)"
            rows.append([one, f"{name}: total variation", over_seeds([e.weights for e in same]), None])
        deltas = heterogeneity(runs[0])
        if deltas:
            across = [each.round for each in deltas]
            curves = {
                "δ, mean over clients": (across, [each.mean / each.rate for each in deltas]),
                "δ × η, mean": (across, [each.mean for each in deltas]),
                "δ × η, largest": (across, [each.largest for each in deltas]),
            }
            lines(panel, curves, "round", "heterogeneity")
            bounded = "δ stays bounded (Theorem 1)"
            for each in (deltas[0], deltas[-1]):
                rows.append([bounded, f"round {each.round}: mean δ", Number(each.mean / each.rate, digits=4), None])
                rows.append([bounded, f"round {each.round}: mean δ × η", Number(each.mean, digits=4), None])
        reached, cost = at_threshold(runs, published.THRESHOLD)
        last = accuracy(runs, len(runs[0].exit_macs) - 1)
        saving = 100 * (1 - cost.value * 1e6 / runs[0].exit_macs[-1])
        good = f"ε = {published.THRESHOLD:g} balances accuracy and MACs (Section 5.4.5)"
        rows.append([good, "drop (points)", Number(last.value - reached.value), Number(published.DROP)])
        rows.append([good, "MACs saved (%)", Number(saving), Number(published.SAVING)])
    if "xfed" in by_method and "scalefl" in by_method:
        costs = {name: _client_macs(by_method[name][0]) for name in ("xfed", "scalefl")}
        alike = "client cost as ScaleFL's (Section 4.5)"
        rows.append([alike, "X-FED / ScaleFL, MACs", Number(costs["xfed"] / costs["scalefl"], digits=3), Number(1.0)])
    header = ["assumption", "measured", "ours", "published"]
    text = "Similarity and weights: over the clients of the last round. δ: of the convergence theorem, by round."
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def _client_macs(run: Run) -> float:
    return float(np.mean([record.macs / record.replies for record in run.records()]))
