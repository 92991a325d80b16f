"""Which thresholds: searches over a calibration trace, as pure functions on arrays.

Costs rise with the exit, so the mean cost rises with a shared threshold and can be bisected exactly: it changes only
at observed values, and all of them are looked at. A chosen threshold lies midway between two observed values, so
that the last bits of a signal, which depend on the batch, do not flip a sample (spec/inference.md, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

PRICES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.8, 1.5, 3.0)
"""Accuracy that the full model's cost is taken to be worth, in the search over thresholds by exit."""
RATIOS = np.geomspace(1e-4, 1e4, 81)
BISECTIONS = 40
SWEEPS = 20
SLACK = 1e-9


@dataclass(frozen=True)
class Evidence:
    """What is known of n samples at m exits, to choose thresholds by.

    `scores` (n × m−1): how sure each exit but the last is, larger is surer; −∞ never leaves. `right` (n × m): 1 for
    a right answer. `costs` (m) of leaving at each exit. `weights` (n) sum to 1.
    """

    scores: Numbers
    right: Numbers
    costs: Numbers
    weights: Numbers

    @property
    def exits(self) -> int:
        """Number of exits."""
        return len(self.costs)

    def taken(self, thresholds: Numbers) -> NDArray[np.int64]:
        """Give the exit that each sample takes."""
        sure = np.column_stack([self.scores > thresholds, np.ones(len(self.scores), dtype=np.bool_)])
        taken: NDArray[np.int64] = sure.argmax(axis=1)
        return taken

    def point(self, thresholds: Numbers) -> tuple[float, float]:
        """Give mean cost and accuracy."""
        taken = self.taken(thresholds)
        right = self.right[np.arange(len(taken)), taken]
        return float(self.weights @ self.costs[taken]), float(self.weights @ right)


@dataclass(frozen=True)
class Curve:
    """Mean cost and accuracy as one threshold rises: point k holds from `values[k]` up to `values[k + 1]`."""

    values: Numbers
    cost: Numbers
    accuracy: Numbers

    def threshold(self, point: int) -> float:
        """Give the threshold of a point: midway to the next observed value, ±∞ at the ends."""
        if point == 0:
            return -np.inf
        return midway(self.values[point], self.values[point + 1]) if point + 1 < len(self.values) else np.inf


class Target(Protocol):
    """What is wanted of a policy."""

    def met(self, cost: Numbers, accuracy: Numbers) -> NDArray[np.bool_]:
        """Tell which points are good enough."""

    def merit(self, cost: Numbers, accuracy: Numbers) -> Numbers:
        """Rank points that are good enough, the last key first (points × keys)."""

    @property
    def spends(self) -> bool:
        """Tell whether one threshold should use up what is allowed, rather than be as cheap as it can."""


@dataclass(frozen=True)
class Budget:
    """Mean cost at most `cost`: the best accuracy that this buys."""

    cost: float

    @property
    def spends(self) -> bool:
        """Use the budget up."""
        return True

    def met(self, cost: Numbers, accuracy: Numbers) -> NDArray[np.bool_]:
        """Tell which points are within the budget."""
        return cost <= self.cost * (1 + SLACK)

    def merit(self, cost: Numbers, accuracy: Numbers) -> Numbers:
        """Prefer accuracy, then low cost."""
        return np.stack([accuracy, -cost], axis=-1)


@dataclass(frozen=True)
class AccuracyFloor:
    """Accuracy at least `accuracy`: the lowest cost that keeps it."""

    accuracy: float

    @property
    def spends(self) -> bool:
        """Be as cheap as the accuracy allows."""
        return False

    def met(self, cost: Numbers, accuracy: Numbers) -> NDArray[np.bool_]:
        """Tell which points are accurate enough."""
        return accuracy >= self.accuracy - SLACK

    def merit(self, cost: Numbers, accuracy: Numbers) -> Numbers:
        """Prefer low cost, then accuracy."""
        return np.stack([-cost, accuracy], axis=-1)


def shared(evidence: Evidence, target: Target) -> Numbers | None:
    """Choose one threshold for all exits, exactly: the bisection runs over every observed value."""
    curve = shared_curve(evidence, evidence.right)
    good = np.flatnonzero(target.met(curve.cost, curve.accuracy))
    if not len(good):
        return None
    return np.full(evidence.exits - 1, curve.threshold(int(good[-1] if target.spends else good[0])))


def shared_curve(evidence: Evidence, gains: Numbers) -> Curve:
    """Follow one threshold for all exits through all observed values; `gains` (n × m) is what is averaged.

    With threshold t, a sample passes as many exits as have had no score above t so far. So its way is known from the
    running maximum of its scores: at each of these values it moves one exit on.
    """
    e = evidence
    records = np.maximum.accumulate(e.scores, axis=1)
    steps = e.weights[:, None] * np.diff(e.costs)
    return _curve(
        records.ravel(),
        np.broadcast_to(steps, records.shape).ravel(),
        (e.weights[:, None] * np.diff(gains, axis=1)).ravel(),
        float(e.costs[0] * e.weights.sum()),
        float(e.weights @ gains[:, 0]),
    )


def geometric(evidence: Evidence, target: Target) -> Numbers | None:
    """Choose thresholds by exit so that the shares that leave are a geometric series (MSDNet, Huang et al., 2018).

    Exit k's share is in proportion to ratio^k; a larger ratio sends more samples deep.
    """
    found = [evidence.point(_geometric_thresholds(evidence, ratio)) for ratio in RATIOS]
    cost, accuracy = (np.array(column) for column in zip(*found, strict=True))
    good = np.flatnonzero(target.met(cost, accuracy))
    if not len(good):
        return None
    if not target.spends:
        return _geometric_thresholds(evidence, RATIOS[good[np.argmin(cost[good])]])
    low, high = np.log(RATIOS[good[-1]]), np.log(RATIOS[min(good[-1] + 1, len(RATIOS) - 1)])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        tried = np.array([evidence.point(_geometric_thresholds(evidence, float(np.exp(middle))))])
        low, high = (middle, high) if target.met(tried[:, 0], tried[:, 1])[0] else (low, middle)
    return _geometric_thresholds(evidence, float(np.exp(low)))


def _geometric_thresholds(evidence: Evidence, ratio: float) -> Numbers:
    shares = ratio ** np.arange(evidence.exits, dtype=np.float64)
    wanted = np.cumsum(shares / shares.sum())
    thresholds = np.full(evidence.exits - 1, np.inf)
    left = np.zeros(len(evidence.scores), dtype=np.bool_)
    for j in range(evidence.exits - 1):
        missing = wanted[j] - evidence.weights[left].sum()
        values, which = np.unique(-evidence.scores[~left, j], return_inverse=True)
        weights = np.cumsum(np.bincount(which, evidence.weights[~left], minlength=len(values)))
        count = int(np.searchsorted(weights, missing - SLACK)) + 1 if missing > SLACK else 0
        thresholds[j] = _let_through(-values, count)
        left |= evidence.scores[:, j] > thresholds[j]
    return thresholds


def _let_through(falling: Numbers, count: int) -> float:
    """Give the threshold that the `count` largest of these distinct values exceed."""
    if count == 0:
        return np.inf
    kept_back = falling[count] if count < len(falling) else -np.inf
    return midway(kept_back, falling[count - 1]) if kept_back > -np.inf else -np.inf


def pareto(evidence: Evidence, target: Target) -> Numbers | None:
    """Choose a threshold for each exit: the best that is found, at least as good as the other two ways.

    For a price on cost, one exit's threshold after another is set to the best of all its values, given the others,
    until nothing moves; every point on the way counts, and many prices trace out the front of cost and accuracy.
    """
    starts = [found for found in (shared(evidence, target), geometric(evidence, target)) if found is not None]
    best, merit = None, (-np.inf, -np.inf)

    def consider(thresholds: Numbers, curve: Curve, j: int) -> None:
        nonlocal best, merit
        good = np.flatnonzero(target.met(curve.cost, curve.accuracy))
        if not len(good):
            return
        merits = target.merit(curve.cost[good], curve.accuracy[good])
        first = int(np.lexsort(merits.T[::-1])[-1])
        if tuple(merits[first]) > merit:
            merit = tuple(merits[first])
            best = thresholds.copy()
            best[j] = curve.threshold(int(good[first]))

    for thresholds in starts or [np.full(evidence.exits - 1, np.inf)]:
        for price in PRICES:
            thresholds = thresholds.copy()
            for _ in range(SWEEPS):
                before = thresholds.copy()
                for j in range(evidence.exits - 1):
                    curve = _curve_of_one(evidence, thresholds, j)
                    consider(thresholds, curve, j)
                    value = curve.accuracy - price * curve.cost / evidence.costs[-1]
                    thresholds[j] = curve.threshold(int(value.argmax()))
                if np.array_equal(before, thresholds):
                    break
    return best


def _curve_of_one(evidence: Evidence, thresholds: Numbers, j: int) -> Curve:
    """Follow exit j's threshold through all observed values, with the others as they are."""
    e = evidence
    without = thresholds.copy()
    without[j] = np.inf
    passing = e.taken(without)
    reaching = passing > j
    weights, onwards = e.weights[reaching], passing[reaching]
    rows = np.flatnonzero(reaching)
    away = ~reaching
    return _curve(
        e.scores[rows, j],
        weights * (e.costs[onwards] - e.costs[j]),
        weights * (e.right[rows, onwards] - e.right[rows, j]),
        float(weights.sum() * e.costs[j] + e.weights[away] @ e.costs[passing[away]]),
        float(weights @ e.right[rows, j] + e.weights[away] @ e.right[away, passing[away]]),
    )


def _curve(values: Numbers, costs: Numbers, gains: Numbers, cost: float, gain: float) -> Curve:
    """Add up what happens at each value, in rising order, starting where all that can leave do."""
    distinct, which = np.unique(np.append(values, -np.inf), return_inverse=True)

    def rising(start: float, steps: Numbers) -> Numbers:
        return start + np.cumsum(np.bincount(which, np.append(steps, 0.0)), dtype=np.float64)

    return Curve(distinct, rising(cost, costs), rising(gain, gains))


def midway(low: float, high: float) -> float:
    """Give a number about midway between two, with as few digits as leave a quarter of the gap on either side.

    Between neighbours in float32, where no number lies midway, the lower one: what must exceed it is the upper.
    """
    middle, quarter = (low + high) / 2, (high - low) / 4
    for digits in range(1, 10):
        rounded = round(middle, digits)
        if abs(rounded - middle) <= quarter and low < np.float32(rounded) < high:
            return rounded
    return float(low)
