"""Figures from runs on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from xfed.files import whole
from xfed.report.tables import MethodRow
from xfed.runs.reader import Run


def exits_and_rounds(rows: Sequence[MethodRow], runs: Sequence[Run], path: Path) -> None:
    """Draw each method's accuracy per exit (bars: std over clients) and its averaged accuracy over rounds."""
    colors = matplotlib.colormaps["tab10" if len(rows) <= 10 else "tab20"]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    exits = max(len(row.exits) for row in rows)
    width = 0.8 / len(rows)
    for number, row in enumerate(rows):
        places = np.arange(len(row.exits)) + (exits - len(row.exits)) + (number - (len(rows) - 1) / 2) * width
        left.bar(
            places,
            100 * np.array(row.exits),
            width * 0.92,
            yerr=100 * np.array(row.exit_stds),
            error_kw={"elinewidth": 0.8, "ecolor": "0.35"},
            color=colors(number),
            label=row.method,
        )
        rounds, means = _curve([run for run in runs if run.experiment.method == row.method])
        right.plot(rounds, 100 * means, marker="o", markersize=3, color=colors(number), label=row.method)
    majority = 100 * np.mean([run.environment()["majority_baseline"]["mean"] for run in runs])
    for axes in (left, right):
        axes.axhline(majority, color="0.4", linestyle=":", linewidth=1.2, label="majority class")
        axes.set_ylabel("accuracy on own test samples (%)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    left.set_xticks(range(exits), [f"exit {j + 1}" for j in range(exits)])
    left.set_ylim(0, 105)
    left.set_title("Per exit, final evaluation (bars: std over clients)", fontsize=10)
    right.set_xlabel("round")
    right.set_title("Averaged over exits", fontsize=10)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False, fontsize=9)
    with whole(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix.removeprefix("."))


def _curve(runs: Sequence[Run]) -> tuple[list[int], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    evaluations = [run.evaluations() for run in runs]
    means = np.mean([[evaluation.mean for evaluation in each] for each in evaluations], axis=0)
    return [evaluation.round for evaluation in evaluations[0]], means
