"""From a budget or an accuracy to a policy that keeps it, by hand and on random traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.traces import by_hand, drawn
from xfed.calibration.calibrate import SEARCHES, CostLimit, MaxDrop, Rule, Search, calibrate
from xfed.calibration.outcomes import outcome
from xfed.errors import InputError
from xfed_runtime.policy import SIGNALS, Policy, Signal, simulate

COSTS = (150.0, 290.0, 420.0, 560.0)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("search", SEARCHES)
def test_a_budget_holds_for_the_policy_that_is_written(signal: Signal, search: Search) -> None:
    trace = drawn(600, 4, seed=1)
    policy = calibrate(trace, COSTS, CostLimit(300.0), Rule(signal), search)
    found = outcome(policy, trace, COSTS)
    assert found.cost <= 300.0
    assert policy.kind == signal
    if search == "pareto":
        others = [calibrate(trace, COSTS, CostLimit(300.0), Rule(signal), each) for each in ("shared", "geometric")]
        assert found.accuracy >= max(outcome(each, trace, COSTS).accuracy for each in others)


@pytest.mark.parametrize("search", SEARCHES)
def test_an_accuracy_is_kept_at_lower_cost(search: Search) -> None:
    trace = drawn(600, 4, seed=2)
    loose, tight = (
        outcome(calibrate(trace, COSTS, MaxDrop(drop), Rule(), search), trace, COSTS) for drop in (0.05, 0.005)
    )
    assert loose.accuracy >= loose.full_accuracy - 0.05 - 1e-9
    assert tight.accuracy >= tight.full_accuracy - 0.005 - 1e-9
    assert loose.cost < tight.cost < COSTS[-1]


def test_the_ends_of_a_budget() -> None:
    trace = drawn(50, 4, seed=3)
    for search in SEARCHES:
        assert set(simulate(calibrate(trace, COSTS, CostLimit(150.0), Rule(), search), trace.own)) == {0}
    unlimited = outcome(calibrate(trace, COSTS, CostLimit(600.0), Rule(), "shared"), trace, COSTS)
    assert unlimited.accuracy >= unlimited.full_accuracy
    assert calibrate(trace, COSTS, CostLimit(150.0), Rule(), "shared").threshold == 0.0
    with pytest.raises(InputError, match=r"a budget of 149 MACs is below what leaving at exit 1 costs \(150\).*26\.8%"):
        calibrate(trace, COSTS, CostLimit(149.0), Rule(), "shared")


def test_by_hand_with_a_readable_threshold_midway() -> None:
    trace = by_hand([[0.9, 1.0], [0.7, 1.0], [0.5, 1.0], [0.3, 1.0]], [[1, 1]] * 4)
    policy = calibrate(trace, (10.0, 20.0), CostLimit(15.0), Rule(), "shared")
    assert policy.threshold == 0.6, "two of four leave: between 0.5 and 0.7"
    assert calibrate(trace, (10.0, 20.0), CostLimit(17.4), Rule(), "shared").threshold == 0.6
    assert calibrate(trace, (10.0, 20.0), CostLimit(17.5), Rule(), "shared").threshold == 0.8
    assert "at most 15 MACs on average; shared thresholds from 4 calibration samples of client 0" in policy.note


def test_clients_count_the_same_when_they_share_a_policy() -> None:
    # Client 0 has three easy samples, client 1 a single hard one. Costs by client: (c, 20) at every threshold that
    # stops the hard one, so a mean of 15 lets all easy ones go, although 3 of 4 samples then cost 10.
    trace = by_hand([[0.9, 1.0], [0.8, 1.0], [0.7, 1.0], [0.2, 1.0]], [[1, 1]] * 4, owners=[0, 0, 0, 1])
    policy = calibrate(trace, (10.0, 20.0), CostLimit(15.0), Rule(), "shared")
    assert simulate(policy, trace.own).tolist() == [0, 0, 0, 1]
    assert "2 clients together" in policy.note


def test_saturated_confidences_leave_together() -> None:
    trace = by_hand([[1.0, 1.0]] * 3 + [[0.5, 1.0]], [[1, 1]] * 4)
    policy = calibrate(trace, (10.0, 20.0), CostLimit(16.0), Rule(), "shared")
    assert outcome(policy, trace, (10.0, 20.0)).cost == pytest.approx(12.5), "all three that say 1.0, or none"


def test_nan_never_leaves() -> None:
    trace = by_hand([[np.nan, np.nan], [0.5, 1.0]], [[1, 1]] * 2)
    policy = calibrate(trace, (10.0, 20.0), CostLimit(15.0), Rule(), "shared")
    assert simulate(policy, trace.own).tolist() == [1, 0]
    with pytest.raises(InputError, match="no threshold on confidence gives at most 12 MACs on average"):
        calibrate(trace, (10.0, 20.0), CostLimit(12.0), Rule(), "shared")


def test_running_answers_are_calibrated_on_their_own_signals() -> None:
    trace = drawn(100, 4, seed=5)
    other = drawn(100, 4, seed=6)
    both = replace(trace, running=other.own)
    policy = calibrate(both, COSTS, CostLimit(300.0), Rule(answer="running"), "shared")
    expected = calibrate(replace(other, labels=both.labels), COSTS, CostLimit(300.0), Rule(), "shared")
    assert policy.answer == "running"
    assert policy.threshold == expected.threshold


def test_an_outcome_by_hand() -> None:
    trace = by_hand([[0.9, 0.9], [0.9, 0.9], [0.1, 0.9], [0.1, 0.9]], [[1, 1], [0, 1], [1, 0], [1, 1]])
    found = outcome(Policy("confidence", threshold=0.5), trace, (10.0, 20.0))
    assert found.samples == 4
    assert found.accuracy == 0.5
    assert found.full_accuracy == 0.75
    assert found.disagreement == 0.25
    assert found.cost == 15.0
    assert found.shares == (0.5, 0.5)
