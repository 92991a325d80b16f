"""When rounds happen, with whom, and who is evaluated: all known before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xfed.evaluation.summary import LAST_ROUNDS
from xfed.protocol.cohort import Cohort, draw_cohort
from xfed.randomness import Purpose, numpy_stream

CLIENTS_TOGETHER, SAMPLES_TOGETHER = 32, 1024  # evaluated as one piece of work; fixed, so that bits never change
MODEL_BYTES_TOGETHER = 64 * 2**20
EVALUATED = 1_000  # clients evaluated by default where there are more


@dataclass(frozen=True)
class Plan:
    """How many rounds, with whom, evaluated and saved when."""

    rounds: int
    cohort_size: int
    eval_every: int
    checkpoint_every: int
    sizes: Sequence[int]
    """Training samples per client."""
    test_sizes: Sequence[int]
    seed: int
    eval_clients: int | None = None

    def cohort(self, round: int) -> Cohort:
        """Draw a round's cohort, largest client first: dealt out in that order, no worker idles at the end."""
        drawn = draw_cohort(self.seed, round, self.rounds, len(self.sizes), self.cohort_size)
        ordered = sorted(drawn.clients, key=lambda client: (-self.sizes[client], client))
        return Cohort(round, self.rounds, tuple(ordered))

    def evaluates(self, round: int) -> bool:
        """Tell whether a round ends with an evaluation: at the cadence, and in the last five."""
        return round % self.eval_every == 0 or round > self.rounds - LAST_ROUNDS

    @cached_property
    def evaluated(self) -> tuple[int, ...]:
        """Choose who is evaluated: everyone, or a fixed sample.

        A plain sample of very many clients would hold few that ever train. So half of it is drawn from the clients
        that some cohort of the run holds, half from the others; each row then counts for the clients it stands for.
        """
        population = len(self.sizes)
        size = min(population, EVALUATED if self.eval_clients is None else self.eval_clients)
        if size == population:
            return tuple(range(population))
        rng = numpy_stream(self.seed, Purpose.EVALUATED)
        taking_part = np.zeros(population, dtype=bool)
        for round in range(1, self.rounds + 1):
            taking_part[list(self.cohort(round).clients)] = True
        groups = [np.flatnonzero(taking_part), np.flatnonzero(~taking_part)]
        first = max(min(size - size // 2, len(groups[0])), size - len(groups[1]))
        chosen = [rng.choice(group, n, replace=False) for group, n in zip(groups, (first, size - first), strict=True)]
        return tuple(sorted(np.concatenate(chosen).tolist()))

    def groups(self, model_bytes: int = 0) -> tuple[tuple[int, ...], ...]:
        """Cut the evaluated clients into what is evaluated as one piece of work.

        Where whole models come back (`model_bytes` each), no group's together are large.
        """
        most = max(1, min(CLIENTS_TOGETHER, MODEL_BYTES_TOGETHER // max(model_bytes, 1)))
        groups: list[list[int]] = [[]]
        samples = 0
        for client in self.evaluated:
            if len(groups[-1]) == most or samples >= SAMPLES_TOGETHER:
                groups.append([])
                samples = 0
            groups[-1].append(client)
            samples += self.test_sizes[client]
        return tuple(map(tuple, groups))

    def saves(self, round: int) -> bool:
        """Tell whether a round ends with a checkpoint."""
        return round % self.checkpoint_every == 0 or round == self.rounds
