"""Who takes part in a round; drawn in advance, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass

from xfed.randomness import Purpose, numpy_stream


@dataclass(frozen=True)
class Cohort:
    """The participants of one round, in the one order in which their uploads are added up."""

    round: int
    rounds: int
    clients: tuple[int, ...]


def draw_cohort(seed: int, round: int, rounds: int, population: int, size: int) -> Cohort:
    """Draw a round's clients uniformly without replacement: a function of seed and round alone."""
    rng = numpy_stream(seed, Purpose.COHORTS, round=round)
    return Cohort(round, rounds, tuple(sorted(rng.choice(population, size, replace=False).tolist())))
