"""The case study as a table and a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from xfed.files import whole
from xfed.inference.case_study import Condition, Measured, Setup
from xfed.report.terminal import show_caption, show_table

HEADER = ["condition", "method", "accuracy", "latency, ms", "static / early", "leaving at exits"]


@dataclass(frozen=True)
class Line:
    """One model under one condition: mean and std over clients; `ratio` is its latency over the early-exit one's."""

    condition: Condition
    method: str
    early: bool
    accuracy: float
    accuracy_std: float
    latency: float
    latency_std: float
    ratio: float
    shares: tuple[float, ...]


def lines(measured: Sequence[Measured]) -> list[Line]:
    """Average over clients, each counting the same."""
    found = []
    for condition in dict.fromkeys(each.condition for each in measured):
        within = [each for each in measured if each.condition == condition]
        early = np.mean([each.latency for each in within if each.early])
        for method in dict.fromkeys(each.method for each in within):
            own = [each for each in within if each.method == method]
            accuracies, latencies = (
                np.array([getattr(each, name) for each in own]) for name in ("accuracy", "latency")
            )
            found.append(
                Line(
                    condition,
                    method,
                    own[0].early,
                    float(accuracies.mean()),
                    float(accuracies.std()),
                    float(latencies.mean()),
                    float(latencies.std()),
                    float(latencies.mean() / early),
                    tuple(np.mean([each.shares for each in own], axis=0).tolist()),
                )
            )
    return found


def _cells(line: Line) -> list[str]:
    return [
        line.condition,
        line.method,
        f"{100 * line.accuracy:.2f} ± {100 * line.accuracy_std:.2f}",
        f"{line.latency:.3f} ± {line.latency_std:.3f}",
        "" if line.early else f"{line.ratio:.2f} ×",
        " / ".join(f"{100 * share:.0f} %" for share in line.shares) if line.early else "last",
    ]


def notes(setup: Setup) -> str:
    """Say what the table shows."""
    return (
        f"{len(setup.clients)} clients; early exit where the confidence exceeds {setup.epsilon:g}; batch 1, 1 thread. "
        f"Mean ± std over clients; latency: wall time of a sample, median of {setup.repetitions} interleaved timings. "
        f"Noise: Gaussian, σ = {setup.noise:g}, on pixels in [0, 1] or on normalised inputs."
    )


def show(measured: Sequence[Measured], setup: Setup, wide: bool = False) -> None:
    """Print the table to the terminal."""
    found = lines(measured)
    styles = ["bold" if line.early else "" for line in found]
    hidden = show_table(HEADER, [_cells(line) for line in found], texts=2, styles=styles, wide=wide)
    show_caption(notes(setup), wide, hidden)


def markdown(measured: Sequence[Measured], setup: Setup) -> str:
    """Write the table as Markdown."""
    rule = ["---", "---", *["---:"] * (len(HEADER) - 2)]
    rows = ["| " + " | ".join(row) + " |" for row in (HEADER, rule, *(_cells(line) for line in lines(measured)))]
    return "\n".join([*rows, "", notes(setup), ""])


def comma_separated(measured: Sequence[Measured]) -> str:
    """Write one row per client, condition and method as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["condition", "client", "method", "early", "accuracy", "latency_ms", "exit_shares"])
    for each in measured:
        shares = " ".join(f"{share:.4f}" for share in each.shares)
        writer.writerow(
            [each.condition, each.client, each.method, each.early, each.accuracy, f"{each.latency:.6f}", shares]
        )
    return text.getvalue()


def draw(measured: Sequence[Measured], path: Path) -> None:
    """Draw accuracy and latency by condition; the bars of static models carry how much slower they are."""
    found = lines(measured)
    conditions = list(dict.fromkeys(line.condition for line in found))
    methods = list(dict.fromkeys(line.method for line in found))
    colors = matplotlib.colormaps["tab10"]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        own = [line for line in found if line.method == method]
        places = np.arange(len(own)) + (number - (len(methods) - 1) / 2) * width
        style = {"color": colors(number), "error_kw": {"elinewidth": 0.8, "ecolor": "0.35"}}
        label = f"{method}, early exit" if own[0].early else f"{method}, static"
        accuracy, spread = (
            100 * np.array([getattr(line, name) for line in own]) for name in ("accuracy", "accuracy_std")
        )
        left.bar(places, accuracy, width * 0.92, yerr=spread, label=label, **style)
        latency = np.array([line.latency for line in own])
        bars = right.bar(places, latency, width * 0.92, label=label, color=colors(number))
        if not own[0].early:
            right.bar_label(bars, [f"{line.ratio:.2f} ×" for line in own], fontsize=8, padding=2)
    for axes, title, unit in (
        (left, "Accuracy (bars: std over clients)", "accuracy on own test samples (%)"),
        (right, "Mean latency at batch 1, and times slower than early exit", "ms per sample"),
    ):
        axes.set_xticks(range(len(conditions)), conditions)
        axes.set_title(title, fontsize=10)
        axes.set_ylabel(unit)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    left.set_ylim(0, 105)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    with whole(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix.removeprefix("."))
