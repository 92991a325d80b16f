"""From rows per round, client and exit to the numbers that tables show.

acc_i = mean over exits of client i's accuracies. Reported is the unweighted mean over clients and the
population standard deviation over clients (spec section 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LAST_ROUNDS = 5


@dataclass(frozen=True)
class RoundAccuracy:
    """One evaluated round: accuracies as clients × exits, each in [0, 1], and who had trained by then."""

    round: int
    accuracies: NDArray[np.float64]
    trained: NDArray[np.bool_]

    @property
    def mean(self) -> float:
        """Averaged accuracy: mean over clients of the mean over exits."""
        return float(self.accuracies.mean(axis=1).mean())

    @property
    def std(self) -> float:
        """Population standard deviation over clients of the mean over exits."""
        return float(self.accuracies.mean(axis=1).std())

    @property
    def exits(self) -> list[float]:
        """Mean over clients, for each exit."""
        return [float(value) for value in self.accuracies.mean(axis=0)]

    @property
    def exit_stds(self) -> list[float]:
        """Population standard deviation over clients, for each exit."""
        return [float(value) for value in self.accuracies.std(axis=0)]

    def only(self, trained: bool) -> RoundAccuracy | None:
        """Restrict to clients that have (not) trained so far; nothing when there are none."""
        rows = self.trained == trained
        return RoundAccuracy(self.round, self.accuracies[rows], self.trained[rows]) if rows.any() else None


@dataclass(frozen=True)
class Summary:
    """A run in numbers: `last` evaluation, mean of the last five evaluated rounds, and the best one.

    The last two are empty for a method that is fine-tuned before its final evaluation: earlier ones do not compare.
    """

    last: RoundAccuracy
    last5: float | None
    best: RoundAccuracy | None


def summarise(evaluations: Sequence[RoundAccuracy], tuned_at_the_end: bool = False) -> Summary:
    """Summarise the evaluated rounds of a run, given in order."""
    if tuned_at_the_end:
        return Summary(evaluations[-1], None, None)
    return Summary(
        last=evaluations[-1],
        last5=float(np.mean([evaluation.mean for evaluation in evaluations[-LAST_ROUNDS:]])),
        best=max(evaluations, key=lambda evaluation: evaluation.mean),
    )
