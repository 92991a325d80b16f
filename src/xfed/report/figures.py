"""Figures from runs on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from xfed.errors import InputError
from xfed.report.drawing import Drawing, fill, style
from xfed.report.rows import MethodRow, by_task, collect, grouped
from xfed.report.tables import majority, settings_in_words
from xfed.runs.reader import Run

SUFFIXES = (".png", ".svg", ".pdf")
Numbers = NDArray[np.float64]


def draw_accuracy(runs: Sequence[Run], path: Path | None = None) -> Drawing:
    """Draw accuracy per exit and over rounds, of one run or of many; the path's suffix decides the kind of file.

    Bars carry the std over clients, curves the std over seeds as a band. Runs that differ by their seed alone are one.
    """
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{str(path)!r} is no figure that can be written; allowed: {', '.join(SUFFIXES)}")
    for run in runs:
        if not (run.records() and run.evaluations()):
            raise InputError(f"run {str(run.path)!r} has no evaluation yet; 'xfed resume {run.path}' continues it")
    if len(by_task(runs)) > 1:
        raise InputError("the runs are on different data or dealt out differently; draw those that compare")
    rows, groups = collect(runs), grouped(runs)
    drawing = Drawing.of(2, f"Accuracy on {settings_in_words(runs)}", "")
    left, right = drawing.panels
    _exits(left, rows)
    for number, (row, group) in enumerate(zip(rows, groups, strict=True)):
        _curve(right, number, row.method, group)
    average = 100 * majority(runs)[0]
    for axes in (left, right):
        axes.axhline(average, color="0.4", linestyle=":", linewidth=1.2, label="majority class")
        axes.set_ylabel("accuracy on own test samples (%)")
        axes.set_ylim(0, 102)
    rounds = max(run.experiment.training.rounds for run in runs)
    right.set_xlim(0, rounds * 1.02)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlabel("round")
    left.set_title("Per exit, final evaluation (whiskers: std over clients)", fontsize=9)
    several = any(len(group) > 1 for group in groups)
    right.set_title(f"Averaged over exits{' (band: std over seeds)' * several}", fontsize=9)
    handles, labels = right.get_legend_handles_labels()
    drawing.figure.legend(handles, labels, loc="outside lower center", ncols=8, fontsize=8, frameon=False)
    if path is not None:
        drawing.write(path)
    return drawing


def _exits(axes: Axes, rows: Sequence[MethodRow]) -> None:
    """Draw a bar per method and exit; whiskers end at 0 and at 100, where accuracies do."""
    exits = max(len(row.exits) for row in rows)
    width = 0.8 / len(rows)
    for number, row in enumerate(rows):
        shift = (exits - len(row.exits)) + (number - (len(rows) - 1) / 2) * width
        means, stds = 100 * np.array(row.exits), 100 * np.array(row.exit_stds)
        axes.bar(
            np.arange(len(means)) + shift,
            means,
            width * 0.92,
            yerr=whiskers(means, stds),
            error_kw={"elinewidth": 0.8, "ecolor": "0.35"},
            **fill(number),
            label=row.method,
        )
    axes.set_xticks(range(exits), [f"exit {j + 1}" for j in range(exits)])


def whiskers(means: Numbers, stds: Numbers) -> Numbers:
    """Give the lengths of whiskers downwards and upwards, cut where accuracies (%) end."""
    return np.stack([np.minimum(stds, means), np.minimum(stds, 100 - means)])


def _curve(axes: Axes, number: int, name: str, runs: Sequence[Run]) -> None:
    rounds, means, spread = over_rounds(runs)
    look = style(number)
    axes.plot(rounds, 100 * means, label=name, **look, markevery=max(1, len(rounds) // 12))
    if len(runs) > 1:
        low, high = 100 * (means - spread), np.minimum(100 * (means + spread), 100)
        axes.fill_between(rounds, low, high, color=look["color"], alpha=0.2, linewidth=0)


def over_rounds(runs: Sequence[Run]) -> tuple[list[int], Numbers, Numbers]:
    """Give the rounds that all runs were evaluated in, with mean and std (n − 1) over the runs."""
    found = [{evaluation.round: evaluation.mean for evaluation in run.evaluations()} for run in runs]
    rounds = sorted(set.intersection(*(set(each) for each in found)))
    values = np.array([[each[round] for round in rounds] for each in found])
    spread = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(rounds))
    return rounds, values.mean(axis=0), spread
