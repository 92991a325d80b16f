"""From a budget, or an accuracy to keep, to a policy: chosen on calibration samples, never on test samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xfed.calibration.thresholds import (
    AccuracyFloor,
    Budget,
    Choices,
    Evidence,
    Numbers,
    Target,
    geometric,
    pareto,
    shared,
)
from xfed.errors import InputError, unknown
from xfed.evaluation.traces import ExitTrace
from xfed_runtime.answers import ANSWERS, Answer
from xfed_runtime.device import Latencies
from xfed_runtime.policy import SIGNALS, Policy, Signal

Search = Literal["shared", "geometric", "pareto"]

SEARCHES: dict[Search, Callable[[Evidence], Choices]] = {
    "shared": shared,
    "geometric": geometric,
    "pareto": pareto,
}

ALWAYS_ENTROPY = 100.0  # nats: more than any number of classes can reach


@dataclass(frozen=True)
class Rule:
    """How a policy decides: by which signal of which answers."""

    signal: Signal = "confidence"
    answer: Answer = "own"

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise unknown("signal", self.signal, SIGNALS)
        if self.answer not in ANSWERS:
            raise unknown("answer", self.answer, ANSWERS)

    def policy(self, scores: Numbers, note: str = "") -> Policy:
        """Make a policy from thresholds on scores, one for each exit but the last; ±∞ never and always leave."""
        values = [self._threshold(score) for score in scores.tolist()]
        same = all(value == values[0] for value in values)
        return Policy(self.signal, threshold=values[0] if same else tuple(values), answer=self.answer, note=note)

    def _threshold(self, score: float) -> float:
        if self.signal == "entropy":
            return ALWAYS_ENTROPY if score == -np.inf else 0.0 if score == np.inf else -score
        return 0.0 if score == -np.inf else 1.0 if score == np.inf else score

    def evidence(
        self, trace: ExitTrace, costs: Sequence[float], weights: Mapping[int, float] | None = None
    ) -> Evidence:
        """Gather what a search needs; every client in the trace counts the same, whatever its samples, or by `weights`.

        Scores rise with sureness, so entropy is negated. What no threshold lets leave (NaN, a margin of exactly 0)
        has −∞.
        """
        signals = trace.signals(self.answer)
        values = getattr(signals, self.signal)[:, :-1].astype(np.float64)
        scores = -values if self.signal == "entropy" else np.where(values > 0, values, -np.inf)
        clients, owners, counts = np.unique(trace.owners, return_inverse=True, return_counts=True)
        stands_for = np.array([1.0 if weights is None else weights[client] for client in clients.tolist()])
        return Evidence(
            scores=np.where(np.isnan(scores), -np.inf, scores),
            right=(signals.prediction == trace.labels[:, None]).astype(np.float64),
            costs=np.asarray(costs, dtype=np.float64),
            weights=stands_for[owners] / (stands_for.sum() * counts[owners]),
        )


@dataclass(frozen=True)
class CostLimit:
    """Mean cost at most `most`, in the unit that the exits' costs have."""

    most: float
    unit: str = "MACs"

    def target(self, evidence: Evidence) -> Target:
        """Make sure that the cheapest policy is within the budget."""
        least, full = float(evidence.costs[0]), float(evidence.costs[-1])
        if self.most < least:
            raise InputError(
                f"a budget of {self.most:,.6g} {self.unit} is below what leaving at exit 1 costs ({least:,.6g}); "
                f"the least that any policy needs is {least / full:.1%} of the full model's {full:,.6g}"
            )
        return Budget(self.most)

    def __str__(self) -> str:
        return f"at most {self.most:,.6g} {self.unit} on average"


@dataclass(frozen=True)
class MaxDrop:
    """Accuracy at most `drop` (0.01: one point) below the full model's; the lowest cost that keeps it."""

    drop: float

    def target(self, evidence: Evidence) -> Target:
        """Measure the full model."""
        return AccuracyFloor(float(evidence.weights @ evidence.right[:, -1]) - self.drop)

    def __str__(self) -> str:
        points = f"{100 * self.drop:g}"
        return f"accuracy at most {points} {'point' if points == '1' else 'points'} below the full model's"


Wish = CostLimit | MaxDrop


@dataclass(frozen=True)
class Deadline:
    """An answer within so many milliseconds, for such a share of inputs, by a device's latencies.

    Needs no thresholds: samples go on as long as the next exit is expected in time.
    """

    ms: float
    quantile: float
    latencies: Latencies

    def policy(self, answer: Answer) -> Policy:
        """Make the policy; a deadline that not even exit 1 keeps is refused."""
        if self.latencies.slow[0] > self.ms:
            raise InputError(
                f"a deadline of {self.ms:g} ms is not kept by exit 1 alone, which {self.quantile:.0%} of inputs pass "
                f"within {self.latencies.slow[0]:.3g} ms"
            )
        return Policy("anytime", deadline_ms=self.ms, quantile=self.quantile, answer=answer, note=str(self))

    def __str__(self) -> str:
        return f"an answer within {self.ms:g} ms for {self.quantile:.0%} of inputs"


def calibrate(
    trace: ExitTrace,
    costs: Sequence[float],
    wish: Wish,
    rule: Rule,
    search: Search,
    weights: Mapping[int, float] | None = None,
) -> Policy:
    """Choose the thresholds of a policy on a calibration trace, of one client or of several together.

    `weights` say how many clients each one stands for; without them all count the same.
    """
    evidence = rule.evidence(trace, costs, weights)
    target = wish.target(evidence)
    thresholds = SEARCHES[search](evidence).best(target)
    if thresholds is None:
        raise InputError(f"no threshold on {rule.signal} gives {wish} on the {len(trace)} calibration samples")
    clients = trace.clients
    whose = f"client {clients[0]}" if len(clients) == 1 else f"{len(clients)} clients together"
    return rule.policy(thresholds, f"{wish}; {search} thresholds from {len(trace)} calibration samples of {whose}")
