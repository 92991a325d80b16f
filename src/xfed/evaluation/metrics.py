"""Figures per client and exit beside accuracy, by name: built-in ones, and users' own.

A metric is a function of what one exit answers, as logits (samples × classes), and the true classes of one client's
test samples. Where running answers count, the logits are logarithms of their probabilities. It is computed where the
samples are; only its value leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from xfed.errors import InputError, unknown
from xfed_runtime.answers import ANSWERS

Metric = Callable[[NDArray[np.float32], NDArray[np.int64]], float]
TAKEN = ("round", "client", "exit", "samples", "correct", "accuracy", *ANSWERS, "trained", "weight")
"""Columns that a table of metrics has anyway."""
BINS = 15

METRICS: dict[str, Metric] = {}


def metric(name: str) -> Callable[[Metric], Metric]:
    """Decorate a function to make it known under `name`; a plug-in's is known wherever clients run."""
    if name in TAKEN:
        raise InputError(f"metric {name!r} would take the place of a column that is there; use another name")

    def add(function: Metric) -> Metric:
        METRICS[name] = function
        return function

    return add


def require_metrics(names: Iterable[str]) -> None:
    """Refuse names that nothing is registered under."""
    for name in names:
        if name not in METRICS:
            raise unknown("metric", name, METRICS)


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give softmax(logits), row by row."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@metric("loss")
def cross_entropy(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Average −log of the probability that an exit gives the true class."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    right = shifted[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - right))


@metric("f1")
def macro_f1(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Average 2 TP / (2 TP + FP + FN) over the classes that the client holds or the exit answers."""
    answers = logits.argmax(axis=1)
    scores = []
    for each in np.union1d(labels, answers):
        hits = np.sum((answers == each) & (labels == each))
        scores.append(2 * hits / (np.sum(answers == each) + np.sum(labels == each)))
    return float(np.mean(scores))


@metric("calibration_error")
def expected_calibration_error(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Average |accuracy − confidence| over 15 equal bins of confidence, weighted by their samples (ECE)."""
    found = probabilities(logits)
    sure, right = found.max(axis=1), found.argmax(axis=1) == labels
    bins = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
