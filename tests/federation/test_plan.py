"""Cohorts and cadence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from xfed.federation.plan import Plan

PLAN = Plan(
    rounds=30, cohort_size=3, eval_every=10, checkpoint_every=7, sizes=[5, 9, 9, 1, 7, 3], test_sizes=[1] * 6, seed=1
)


def test_cohorts_are_distinct_clients_largest_first_and_a_function_of_seed_and_round() -> None:
    for round in range(1, 31):
        cohort = PLAN.cohort(round)
        assert len(set(cohort.clients)) == 3
        keys = [(-PLAN.sizes[client], client) for client in cohort.clients]
        assert keys == sorted(keys)
        assert replace(PLAN).cohort(round) == cohort
    other = replace(PLAN, seed=2)
    assert [PLAN.cohort(r).clients for r in range(1, 9)] != [other.cohort(r).clients for r in range(1, 9)]


def test_every_client_is_drawn_about_equally_often() -> None:
    counts = Counter(client for round in range(1, 4001) for client in PLAN.cohort(round).clients)
    # Each client: 4000 draws at probability 1/2, standard deviation sqrt(1000) ≈ 31.6; five of them is 158.
    assert all(abs(counts[client] - 2000) < 158 for client in range(6))


def test_cadence() -> None:
    assert [r for r in range(1, 31) if PLAN.evaluates(r)] == [10, 20, 26, 27, 28, 29, 30]
    assert [r for r in range(1, 31) if PLAN.saves(r)] == [7, 14, 21, 28, 30]
