"""What thresholds come to on the test traces of runs: every client counts the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xfed.calibration.outcomes import outcome
from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace
from xfed.report.sheet import Number, over_seeds
from xfed.runs.reader import Run
from xfed_runtime.policy import Policy

GRID = np.arange(101) / 100
"""Thresholds of the paper's curves."""


def read_test_trace(run: Run, round: int | None = None) -> ExitTrace:
    """Read a run's test trace."""
    trace = run.trace("test", round)
    if trace is None:
        raise InputError(f"run {str(run.path)!r} has no test trace; train it without --traces false")
    return trace


def at_threshold(runs: Sequence[Run], epsilon: float) -> tuple[Number, Number]:
    """Give accuracy (%) and cost (million MACs) of leaving where the confidence exceeds a threshold."""
    accuracies, spreads, costs = [], [], []
    for run in runs:
        policy = Policy("confidence", threshold=epsilon, answer=run.experiment.answering())
        found = [outcome(policy, trace, run.exit_macs) for trace in read_test_trace(run).by_client().values()]
        accuracies.append(100 * float(np.mean([each.accuracy for each in found])))
        spreads.append(100 * float(np.std([each.accuracy for each in found])))
        costs.append(float(np.mean([each.cost for each in found])) / 1e6)
    return over_seeds(accuracies, spreads), over_seeds(costs)


def curve(run: Run, round: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give cost (MACs) and accuracy (%) along the grid of thresholds, each client counting the same."""
    trace = read_test_trace(run, round)
    macs = np.asarray(run.exit_macs, dtype=np.float64)
    _, owners, counts = np.unique(trace.owners, return_inverse=True, return_counts=True)
    weights = 1 / (len(counts) * counts[owners])
    signals = trace.signals(run.experiment.answering())
    right = signals.prediction == trace.labels[:, None]
    confidence = signals.confidence.astype(np.float64)
    cost, accuracy = np.empty(len(GRID)), np.empty(len(GRID))
    for k, epsilon in enumerate(GRID):
        sure = confidence > epsilon
        sure[:, -1] = True
        taken = sure.argmax(axis=1)
        cost[k] = weights @ macs[taken]
        accuracy[k] = 100 * (weights @ right[np.arange(len(taken)), taken])
    return cost, accuracy


def accuracy_within(cost: NDArray[np.float64], accuracy: NDArray[np.float64], budget: float) -> float | None:
    """Give the best accuracy within a mean cost; nothing where no threshold is that cheap."""
    within = cost <= budget * (1 + 1e-9)
    return float(accuracy[within].max()) if within.any() else None


def cost_for(cost: NDArray[np.float64], accuracy: NDArray[np.float64], wanted: float) -> float | None:
    """Give the lowest mean cost that reaches an accuracy; nothing where none does."""
    reached = accuracy >= wanted
    return float(cost[reached].min()) if reached.any() else None
