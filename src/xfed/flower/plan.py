"""Rounds of a federation whose clients are not known beforehand: cohorts are drawn from those connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xfed.federation.plan import Plan
from xfed.flower.roster import Roster
from xfed.protocol.cohort import Cohort
from xfed.randomness import Purpose, numpy_stream


@dataclass(frozen=True, kw_only=True)
class LivePlan(Plan):
    """A plan that looks at who is there before every round."""

    roster: Roster
    gather: Callable[[], None]
    """Waits until enough nodes are connected, and lets new ones join."""
    share: float

    def cohort(self, round: int) -> Cohort:
        """Draw from the connected clients, as `draw_cohort` does where all are; what was drawn is written down."""
        if round not in self.roster.cohorts:
            self.gather()
            here = self.roster.connected()
            size = _cohort_size(self.share, len(here))
            rng = numpy_stream(self.seed, Purpose.COHORTS, round=round)
            drawn = sorted(here[place] for place in rng.choice(len(here), size, replace=False).tolist())
            ordered = sorted(drawn, key=lambda client: (-self.sizes[client], client))
            self.roster.cohorts[round] = ordered
            self.roster.write()
        return Cohort(round, self.rounds, tuple(self.roster.cohorts[round]))

    @property
    def evaluated(self) -> tuple[int, ...]:
        """Evaluate whoever is connected."""
        return tuple(self.roster.connected())


def _cohort_size(share: float, clients: int) -> int:
    return max(1, round(share * clients))
