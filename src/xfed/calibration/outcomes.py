"""What a policy comes to on a trace: accuracy, cost, which exits answer, how often the full model says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xfed.evaluation.traces import ExitTrace
from xfed_runtime.device import Latencies
from xfed_runtime.policy import Policy, simulate


@dataclass(frozen=True)
class Outcome:
    """A policy on some samples. Costs are means per sample, `shares` says how many samples leave at each exit."""

    samples: int
    accuracy: float
    full_accuracy: float
    disagreement: float
    cost: float
    shares: tuple[float, ...]
    stands_for: float = 1.0
    """How many clients the one with these samples stands for, where only a sample of the clients was evaluated."""


def averaged(found: Sequence[Outcome]) -> Outcome:
    """Average over clients, each counting for the clients that it stands for; samples are counted together."""
    weights = [each.stands_for for each in found]

    def mean(name: str) -> Any:
        return np.average([getattr(each, name) for each in found], axis=0, weights=weights).tolist()

    return Outcome(
        samples=sum(each.samples for each in found),
        accuracy=mean("accuracy"),
        full_accuracy=mean("full_accuracy"),
        disagreement=mean("disagreement"),
        cost=mean("cost"),
        shares=tuple(mean("shares")),
        stands_for=sum(weights),
    )


def outcome(policy: Policy, trace: ExitTrace, costs: Sequence[float], latencies: Latencies | None = None) -> Outcome:
    """Simulate a policy on a trace; the full model is the last exit's answer. `latencies` are for deadlines."""
    signals = trace.signals(policy.answer)
    taken = simulate(policy, signals, latencies)
    answers = signals.prediction[np.arange(len(trace)), taken]
    full = signals.prediction[:, -1]
    return Outcome(
        samples=len(trace),
        accuracy=float((answers == trace.labels).mean()),
        full_accuracy=float((full == trace.labels).mean()),
        disagreement=float((answers != full).mean()),
        cost=float(np.asarray(costs)[taken].mean()),
        shares=tuple((np.bincount(taken, minlength=trace.exits) / len(trace)).tolist()),
    )
