"""What the paper does not have: X-FED+ step by step, the same help for other methods, and X-FED's open choices."""

from __future__ import annotations

from typing import Any

from xfed.paper.accuracy import label
from xfed.paper.artefact import Product, Results
from xfed.paper.scales import TASKS, Choice, Wanted
from xfed.report.drawing import bars
from xfed.report.sheet import Cell, accuracy
from xfed_runtime.answers import ANSWERS

HELPED = ("xfed", "fedper", "fedrep", "fedrod")
RHO = 0.03
WAITING = {"schedule": "linear", "kd_epochs": "all"}
"""Exits join, and the teacher teaches, as in X-FED."""
STEPS: dict[str, dict[str, Any]] = {
    "exits apart": {**WAITING, "gamma": 0, "teachers": "participants", "mix": "end"},
    "+ newest teachers": {**WAITING, "gamma": 0},
    "+ prior": WAITING,
    "+ all exits from the start, distillation on repeats": {},
}
"""X-FED+ without what comes later; without a refit, which is the last step."""


def successor_wanted(choice: Choice) -> list[Wanted]:
    """X-FED, what X-FED+ adds step by step, and other methods without and with a refit."""
    found = []
    for dataset in TASKS:
        found.append(Wanted(dataset, 0.3, "xfed"))
        for name, settings in STEPS.items():
            changes = tuple((f"xfed-plus.{key}", value) for key, value in settings.items())
            found.append(Wanted(dataset, 0.3, "xfed-plus", name, (*changes, ("refit", 0.0))))
        found.append(Wanted(dataset, 0.3, "xfed-plus", "+ refit: all of it"))
        found += [Wanted(dataset, 0.3, method) for method in HELPED[1:]]
        found += [Wanted(dataset, 0.3, method, "refit", (("refit", RHO),)) for method in HELPED]
    return found


def switches_wanted(choice: Choice) -> list[Wanted]:
    """X-FED with each combination of teacher, temperature and weight; then mixture and evaluated exit."""
    found = []
    for teacher in ("live", "frozen"):
        for temperature in (1.0, 2.0):
            for weight in ("sum", "mean"):
                changes = (("xfed.teacher", teacher), ("xfed.temperature", temperature), ("xfed.kd_weight", weight))
                name = f"{teacher} teacher, τ = {temperature:g}, {weight}"
                found.append(Wanted("cifar100", 0.3, "xfed", name, changes))
    for name in ("start", "end"):
        found.append(Wanted("cifar100", 0.3, "xfed", f"mixed at the {name}", (("xfed.mix", name),)))
    for name in ("mixed", "trained"):
        found.append(Wanted("cifar100", 0.3, "xfed", f"last exit {name}", (("xfed.evaluated", name),)))
    return found


def successor(results: Results) -> Product:
    """Lay both kinds of answers out side by side, averaged and by exit."""
    most = max(len(runs[0].exit_macs) for _, runs in results)
    header = ["data set", "method", "variant", "own answers", "running answers"]
    header += [f"exit {j + 1}, {kind}" for j in range(most) for kind in ANSWERS]
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.datasets), width=8.0)
    for panel, dataset in zip(drawing.panels, results.datasets, strict=True):
        ours: dict[str, list[float | None]] = {kind: [] for kind in ANSWERS}
        names = []
        for wanted, runs in results.on(dataset).items():
            averaged = [accuracy(runs, answers=kind) for kind in ANSWERS]
            line: list[Cell] = [TASKS[dataset].title, wanted.method, wanted.variant or "–", *averaged]
            exits = range(len(runs[0].exit_macs))
            rows.append([*line, *(accuracy(runs, j, kind) for j in exits for kind in ANSWERS)])
            rows[-1] += [None] * (len(header) - len(rows[-1]))
            names.append(label(wanted))
            for kind, number in zip(ANSWERS, averaged, strict=True):
                ours[kind].append(number.value)
        bars(panel, names, {f"{kind} answers": values for kind, values in ours.items()})
        panel.tick_params(axis="x", rotation=60, labelsize=7)
        panel.set_title(TASKS[dataset].title, fontsize=9)
        panel.set_ylabel("averaged accuracy (%)")
    text = (
        "Accuracy in %, last evaluation: mean ± std over clients. Own: each exit's answer; running: the mean of the "
        "exits passed, weighted by depth. Refit: personal exits fitted to the newest backbone, "
        f"ρ = {RHO:g}. Nothing is published."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})
