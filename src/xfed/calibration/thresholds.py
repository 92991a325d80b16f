"""Which thresholds: searches over a calibration trace, as pure functions on arrays.

Costs rise with the exit, so the mean cost rises with a shared threshold; it changes only at observed values, and all
of them are looked at. A chosen threshold lies midway between two observed values, so that the last bits of a signal,
which depend on the batch, do not flip a sample.

What there is to choose from depends on the samples alone, not on what is wanted. So whoever allows more cost has all
the choices of whoever allows less, and a larger budget never buys less accuracy, on these samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

PRICES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.8, 1.5, 3.0)
"""Accuracy that the full model's cost is taken to be worth, in the search over thresholds by exit."""
RATIOS = np.geomspace(1e-4, 1e4, 241)
SWEEPS = 20
STARTS = (0.25, 0.5)
"""Where the search over thresholds by exit starts: at these parts of the other two ways' choices, and at the end."""
SLACK = 1e-9
DIGITS = 12
"""Of figures that are compared: beyond them, sums differ by the order of their terms."""


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
        """Rank points that are good enough, the first key first (points × keys)."""


@dataclass(frozen=True)
class Budget:
    """Mean cost at most `cost`: the best accuracy that this buys."""

    cost: float

    def met(self, cost: Numbers, accuracy: Numbers) -> NDArray[np.bool_]:
        """Tell which points are within the budget."""
        return cost <= self.cost * (1 + SLACK)

    def merit(self, cost: Numbers, accuracy: Numbers) -> Numbers:
        """Prefer accuracy; of equally accurate points the dearest, as a later exit is the safer guess."""
        return np.stack([accuracy, cost], axis=-1)


@dataclass(frozen=True)
class AccuracyFloor:
    """Accuracy at least `accuracy`: the lowest cost that keeps it."""

    accuracy: float

    def met(self, cost: Numbers, accuracy: Numbers) -> NDArray[np.bool_]:
        """Tell which points are accurate enough."""
        return accuracy >= self.accuracy - SLACK

    def merit(self, cost: Numbers, accuracy: Numbers) -> Numbers:
        """Prefer low cost, then accuracy."""
        return np.stack([-cost, accuracy], axis=-1)


@dataclass(frozen=True)
class Choices:
    """Thresholds to choose from: mean cost and accuracy of each, and how to get it."""

    cost: Numbers
    accuracy: Numbers
    thresholds: Callable[[int], Numbers]

    def best(self, target: Target) -> Numbers | None:
        """Take the best that is good enough; nothing where none is."""
        good = np.flatnonzero(target.met(self.cost, self.accuracy))
        if not len(good):
            return None
        merits = np.round(target.merit(self.cost[good], self.accuracy[good]), DIGITS)
        return self.thresholds(int(good[np.lexsort(merits.T[::-1])[-1]]))


def shared(evidence: Evidence) -> Choices:
    """Offer one threshold for all exits, at every value observed."""
    curve = shared_curve(evidence, evidence.right)
    return Choices(curve.cost, curve.accuracy, lambda point: np.full(evidence.exits - 1, curve.threshold(point)))


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


def geometric(evidence: Evidence) -> Choices:
    """Offer thresholds by exit with which the shares that leave are a geometric series (MSDNet, Huang et al., 2018).

    Exit k's share is in proportion to ratio^k; a larger ratio sends more samples deep. At either end of the series are
    the first and the last exit for all.
    """
    ends = [np.full(evidence.exits - 1, end) for end in (-np.inf, np.inf)]
    return _points(evidence, [ends[0], *(_geometric_thresholds(evidence, ratio) for ratio in RATIOS), ends[1]])


def _points(evidence: Evidence, thresholds: Sequence[Numbers]) -> Choices:
    cost, accuracy = (np.array(column) for column in zip(*map(evidence.point, thresholds), strict=True))
    return Choices(cost, accuracy, lambda point: thresholds[point])


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


def pareto(evidence: Evidence) -> Choices:
    """Offer a threshold for each exit: all that a search comes by, and what the other two ways offer.

    For a price on cost, one exit's threshold after another is set to the best of all its values, given the others,
    until nothing moves; every point on the way counts, and many prices trace out the front of cost and accuracy.
    """
    others = [shared(evidence), geometric(evidence)]
    starts = [np.full(evidence.exits - 1, np.inf)]
    starts += [each.thresholds(int(part * (len(each.cost) - 1))) for each in others for part in STARTS]
    passed: list[Choices] = []
    for thresholds in starts:
        for price in PRICES:
            thresholds = thresholds.copy()
            for _ in range(SWEEPS):
                before = thresholds.copy()
                for j in range(evidence.exits - 1):
                    curve = _curve_of_one(evidence, thresholds, j)
                    passed.append(_with_one(thresholds.copy(), j, curve))
                    value = curve.accuracy - price * curve.cost / evidence.costs[-1]
                    thresholds[j] = curve.threshold(int(value.argmax()))
                if np.array_equal(before, thresholds):
                    break
    return _together([*others, *passed])


def _with_one(thresholds: Numbers, j: int, curve: Curve) -> Choices:
    """Offer every value of exit j's threshold, with the others as they are."""

    def at(point: int) -> Numbers:
        found = thresholds.copy()
        found[j] = curve.threshold(point)
        return found

    return Choices(curve.cost, curve.accuracy, at)


def _together(parts: Sequence[Choices]) -> Choices:
    ends = np.cumsum([len(part.cost) for part in parts])

    def at(point: int) -> Numbers:
        which = int(np.searchsorted(ends, point, side="right"))
        return parts[which].thresholds(point - int(ends[which]) + len(parts[which].cost))

    return Choices(np.concatenate([part.cost for part in parts]), np.concatenate([part.accuracy for part in parts]), at)


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
