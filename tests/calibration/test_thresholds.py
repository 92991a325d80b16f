"""Searches for thresholds, against trying all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xfed.calibration.thresholds import AccuracyFloor, Budget, Choices, Evidence, geometric, midway, pareto, shared


def evidence(samples: int, exits: int, seed: int, levels: int | None = None) -> Evidence:
    """Draw scores, on a few levels if there shall be ties."""
    generator = np.random.default_rng(seed)
    scores = generator.random((samples, exits - 1)).astype(np.float32).astype(np.float64)
    if levels is not None:
        scores = np.round(scores * levels) / levels
    right = (generator.random((samples, exits)) < np.linspace(0.5, 0.9, exits)).astype(np.float64)
    costs = np.cumsum(generator.integers(1, 50, exits)).astype(np.float64)
    return Evidence(scores, right, costs, np.full(samples, 1 / samples))


def brute_force(e: Evidence) -> list[tuple[float, float]]:
    """Cost and accuracy of every shared threshold there is, sample by sample."""
    values = sorted({-1.0, *e.scores.ravel().tolist(), 2.0})
    points = []
    for threshold in values:
        taken = [next((j for j, s in enumerate(row) if s > threshold), e.exits - 1) for row in e.scores.tolist()]
        cost = sum(e.costs[j] for j in taken) / len(taken)
        accuracy = sum(e.right[i, j] for i, j in enumerate(taken)) / len(taken)
        points.append((cost, accuracy))
    return points


Shape = tuple[int, int, int, int | None]
SHAPES = st.tuples(st.integers(1, 12), st.integers(2, 4), st.integers(0, 10**6), st.none() | st.integers(2, 5))


@given(SHAPES, st.floats(0, 1))
def test_a_shared_threshold_is_the_most_accurate_that_a_budget_buys(shape: Shape, part: float) -> None:
    e = evidence(*shape)
    budget = e.costs[0] + part * (e.costs[-1] - e.costs[0])
    found = shared(e).best(Budget(budget))
    points = [(accuracy, cost) for cost, accuracy in brute_force(e) if cost <= budget * (1 + 1e-9)]
    accuracy = max(points)[0]
    cost = max(cost for each, cost in points if each >= accuracy - 1e-9)
    assert found is not None
    assert e.point(found) == pytest.approx((cost, accuracy)), "of equally accurate ones the dearest"


@settings(deadline=None, max_examples=10)
@given(SHAPES)
@pytest.mark.parametrize("search", [shared, geometric, pareto])
def test_a_larger_budget_never_buys_less_accuracy(search: Callable[[Evidence], Choices], shape: Shape) -> None:
    e = evidence(*shape)
    offered = search(e)
    found = [offered.best(Budget(budget)) for budget in np.linspace(e.costs[0], e.costs[-1], 9)]
    accuracies = [e.point(thresholds)[1] for thresholds in found if thresholds is not None]
    assert np.diff(accuracies).min(initial=0) >= -1e-9
    assert accuracies[-1] >= e.right[:, -1].mean() - 1e-9, "at 100 % at least the full model"


def test_without_a_reason_to_leave_early_a_budget_is_used_up() -> None:
    e = replace(evidence(40, 3, 1), right=np.tile([[0.0, 0.5, 1.0]], (40, 1)))
    for part in (0.2, 0.5, 0.9):
        budget = e.costs[0] + part * (e.costs[-1] - e.costs[0])
        found = shared(e).best(Budget(budget))
        assert found is not None
        assert budget - (e.costs[-1] - e.costs[0]) / 40 - 1e-9 < e.point(found)[0] <= budget * (1 + 1e-9)


@given(SHAPES, st.floats(0, 0.5))
def test_a_shared_threshold_keeps_an_accuracy_at_the_lowest_cost(shape: Shape, drop: float) -> None:
    e = evidence(*shape)
    floor = e.right[:, -1].mean() - drop
    found = shared(e).best(AccuracyFloor(floor))
    best = min(cost for cost, accuracy in brute_force(e) if accuracy >= floor - 1e-9)
    assert found is not None
    cost, accuracy = e.point(found)
    assert cost == pytest.approx(best)
    assert accuracy >= floor - 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_geometric_shares_are_a_series_that_fits_the_budget(seed: int) -> None:
    e = replace(evidence(4000, 4, seed), right=np.tile([[0.0, 0.1, 0.2, 1.0]], (4000, 1)))
    budget = 0.4 * e.costs[0] + 0.6 * e.costs[-1]
    found = geometric(e).best(Budget(budget))
    assert found is not None
    cost, _ = e.point(found)
    assert budget - 0.04 * e.costs[-1] < cost <= budget * (1 + 1e-9)
    shares = np.bincount(e.taken(found), minlength=4) / 4000
    ratios = shares[1:] / shares[:-1]
    assert ratios == pytest.approx(np.full(3, ratios[0]), rel=0.02)


@settings(deadline=None, max_examples=10)
@given(SHAPES, st.floats(0, 1), st.booleans())
def test_a_search_by_exit_is_never_worse_than_the_others(shape: Shape, part: float, kind: bool) -> None:
    e = evidence(*shape)
    budget = e.costs[0] + part * (e.costs[-1] - e.costs[0])
    target = Budget(budget) if kind else AccuracyFloor(e.right[:, -1].mean() - part / 5)
    found = [search(e).best(target) for search in (pareto, shared, geometric)]
    assert found[0] is not None
    costs, accuracies = (np.array(column) for column in zip(*(e.point(t) for t in found if t is not None), strict=True))
    assert target.met(costs, accuracies)[0]
    merits = [tuple(np.round(merit, 9)) for merit in target.merit(costs, accuracies)]
    assert merits[0] == max(merits)


def test_a_search_by_exit_finds_what_one_threshold_cannot() -> None:
    # Exit 1 is sure and wrong, exit 2 unsure and right: only thresholds by exit pass the first and stop at the next.
    scores = np.array([[0.9, 0.4], [0.8, 0.3]])
    right = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    e = Evidence(scores, right, np.array([1.0, 2.0, 10.0]), np.array([0.5, 0.5]))
    single, by_exit = shared(e).best(Budget(2.0)), pareto(e).best(Budget(2.0))
    assert single is not None
    assert by_exit is not None
    assert e.point(single)[1] == 0.0
    assert e.point(by_exit) == (2.0, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_a_search_by_exit_comes_close_to_the_best_of_all(seed: int) -> None:
    e = evidence(30, 3, seed)
    budget = float(e.costs[0] + 0.5 * (e.costs[-1] - e.costs[0]))
    grids = [[-1.0, *np.unique(e.scores[:, j])] for j in range(2)]
    points = [e.point(np.array([a, b])) for a in grids[0] for b in grids[1]]
    best = max(accuracy for cost, accuracy in points if cost <= budget * (1 + 1e-9))
    found = pareto(e).best(Budget(budget))
    assert found is not None
    assert e.point(found)[1] >= best - 2 / 30 - 1e-9


def test_what_never_leaves_can_make_a_target_impossible() -> None:
    e = Evidence(np.array([[-np.inf], [0.5]]), np.ones((2, 2)), np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    assert shared(e).best(Budget(1.5)) is None
    assert geometric(e).best(Budget(1.5)) is None
    assert pareto(e).best(Budget(1.5)) is None
    assert shared(e).best(Budget(2.0)) is not None


@given(st.floats(0, 1, width=32), st.floats(0, 1, width=32))
def test_midway_lies_between(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assume(low < high)
    found = midway(low, high)
    assert low <= np.float32(found) < high
    assert low <= found < high


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 0.9, 0.5), (0.80, 0.81, 0.805), (0.7, 0.8, 0.75), (-0.42, -0.2, -0.3)]
)
def test_midway_has_few_digits(low: float, high: float, expected: float) -> None:
    assert midway(low, high) == expected
