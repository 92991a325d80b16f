"""From rows per round, client and exit to the numbers that tables show.

acc_i = mean over exits of client i's accuracies. Reported is the unweighted mean over clients and the
population standard deviation over clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LAST_ROUNDS = 5


@dataclass(frozen=True, repr=False)
class RoundAccuracy:
    """One evaluated round: accuracies as clients × exits, each in [0, 1], and who had trained by then.

    Where only a sample of the clients was evaluated, each row stands for as many clients as its weight says.
    """

    round: int
    accuracies: NDArray[np.float64]
    trained: NDArray[np.bool_]
    weights: NDArray[np.float64]

    def __repr__(self) -> str:
        exits = ", ".join(f"{value:.2%}" for value in self.exits)
        clients = len(self.accuracies)
        return f"RoundAccuracy(round {self.round}: {self.mean:.2%} ± {self.std:.2%}, {clients} clients, exits {exits})"

    @property
    def mean(self) -> float:
        """Averaged accuracy: mean over clients of the mean over exits."""
        return float(np.average(self.accuracies.mean(axis=1), weights=self.weights))

    @property
    def std(self) -> float:
        """Population standard deviation over clients of the mean over exits."""
        return float(self._std(self.accuracies.mean(axis=1)))

    @property
    def exits(self) -> list[float]:
        """Mean over clients, for each exit."""
        return [float(value) for value in np.average(self.accuracies, axis=0, weights=self.weights)]

    @property
    def exit_stds(self) -> list[float]:
        """Population standard deviation over clients, for each exit."""
        return [float(value) for value in self._std(self.accuracies)]

    def _std(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        squares = (values - np.average(values, axis=0, weights=self.weights)) ** 2
        return np.sqrt(np.average(squares, axis=0, weights=self.weights))

    def only(self, trained: bool) -> RoundAccuracy | None:
        """Restrict to clients that have (not) trained so far; nothing when there are none."""
        rows = self.trained == trained
        if not rows.any():
            return None
        return RoundAccuracy(self.round, self.accuracies[rows], self.trained[rows], self.weights[rows])


def weights_of(trained: NDArray[np.bool_], trained_in_all: int, population: int) -> NDArray[np.float64]:
    """Tell how many clients each evaluated one stands for: trained ones for trained ones, the others for the others."""
    in_all = {True: trained_in_all, False: population - trained_in_all}
    evaluated = {kind: int((trained == kind).sum()) for kind in (True, False)}
    return np.array([in_all[kind] / evaluated[kind] for kind in trained.tolist()])


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
