"""Policies of a run: whose they are, on what they rest, and that test samples decide nothing."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.traces import by_hand, drawn
from xfed.calibration.calibrate import CostLimit, MaxDrop, Rule
from xfed.calibration.outcomes import averaged
from xfed.calibration.policies import choose
from xfed.calibration.reading import Traces
from xfed.calibration.risk import RiskLimit
from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace
from xfed_runtime.policy import Policy, simulate

COSTS = (100.0, 250.0, 400.0)


def traces(clients: int = 4, test: bool = True) -> Traces:
    """Calibration samples of all clients but the last."""
    calibration = drawn(150, 3, seed=1, clients=clients - 1)
    return Traces(calibration, drawn(200, 3, seed=2, clients=clients) if test else None, COSTS, range(clients))


def test_each_client_keeps_its_own_budget() -> None:
    found = choose(traces(), COSTS, "MACs", CostLimit(240.0), Rule(), "shared", per_client=True)
    assert [each.client for each in found.clients] == [0, 1, 2, 3]
    for each in found.clients[:3]:
        assert each.expected is not None
        assert each.expected.cost <= 240.0
        assert each.basis == "per client"
    assert len({each.policy.threshold for each in found.clients}) > 1


def test_a_client_without_calibration_samples_gets_the_policy_of_all() -> None:
    given = traces()
    shared = choose(given, COSTS, "MACs", CostLimit(240.0), Rule(), "shared", per_client=False)
    last = choose(given, COSTS, "MACs", CostLimit(240.0), Rule(), "shared", per_client=True).clients[3]
    assert (last.basis, last.expected) == ("pooled", None)
    assert last.reported is not None
    assert last.policy.threshold == shared.clients[0].policy.threshold
    assert "as client 3 has none" in last.policy.note


def test_a_client_that_stands_for_three_counts_as_three() -> None:
    one, other = (drawn(60, 3, seed=seed) for seed in (3, 4))
    thrice = [replace(one, owners=one.owners + number) for number in (1, 2, 3)]
    copies = ExitTrace.concatenate([*thrice, replace(other, owners=other.owners + 4)])
    weighted = ExitTrace.concatenate([thrice[0], replace(other, owners=other.owners + 4)])
    wish = CostLimit(200.0)
    wanted = choose(Traces(copies, copies, COSTS, range(5)), COSTS, "MACs", wish, Rule(), "shared", per_client=False)
    weights = {1: 3.0, 4: 1.0}
    given = Traces(weighted, weighted, COSTS, range(5), {"calibration": weights, "test": weights})
    found = choose(given, COSTS, "MACs", wish, Rule(), "shared", per_client=False)
    assert found.clients[0].policy.threshold == wanted.clients[0].policy.threshold
    alike = choose(replace(given, weights={}), COSTS, "MACs", wish, Rule(), "shared", per_client=False)
    assert found.clients[0].policy.threshold != alike.clients[0].policy.threshold
    for kind in ("expected", "reported"):
        few, many = (
            averaged([known for each in some.clients if (known := getattr(each, kind)) is not None])
            for some in (found, wanted)
        )
        assert (few.cost, *few.shares) == pytest.approx((many.cost, *many.shares))
        assert (few.accuracy, few.full_accuracy) == pytest.approx((many.accuracy, many.full_accuracy))
    assert repr(found) == repr(wanted)


def test_figures_are_those_of_each_trace() -> None:
    given = traces()
    assert given.test is not None
    found = choose(given, COSTS, "MACs", MaxDrop(0.02), Rule("entropy"), "shared", per_client=False)
    for each in found.clients:
        trace = given.test.of_client(each.client)
        taken = simulate(each.policy, trace.own)
        assert each.reported is not None
        assert each.reported.cost == pytest.approx(np.array(COSTS)[taken].mean())
        right = [trace.own.prediction[i, j] == 0 for i, j in enumerate(taken)]
        assert each.reported.accuracy == pytest.approx(np.mean(right))


@pytest.mark.parametrize("wish", [CostLimit(240.0), MaxDrop(0.01), RiskLimit(0.3)])
@pytest.mark.parametrize("per_client", [True, False])
def test_the_test_trace_changes_no_policy(wish: CostLimit | MaxDrop | RiskLimit, per_client: bool) -> None:
    with_it, without = (
        choose(traces(test=test), COSTS, "MACs", wish, Rule(), "shared", per_client) for test in (True, False)
    )
    assert [each.policy for each in with_it.clients] == [each.policy for each in without.clients]
    assert [each.expected for each in with_it.clients] == [each.expected for each in without.clients]
    assert all(each.reported is None for each in without.clients)


def test_files_replace_earlier_ones(tmp_path: Path) -> None:
    by_client = choose(traces(), COSTS, "MACs", CostLimit(240.0), Rule(), "shared", per_client=True)
    by_client.write(tmp_path)
    names = [f"client-{client:06d}.json" for client in range(4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calibration.csv", *names]
    assert Policy.read(tmp_path / names[2]) == by_client.clients[2].policy
    shared = choose(traces(), COSTS, "MACs", CostLimit(240.0), Rule(), "geometric", per_client=False)
    shared.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calibration.csv", "shared.json"]
    assert Policy.read(tmp_path / "shared.json") == shared.clients[0].policy
    with (tmp_path / "calibration.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["client"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[3]["expected_accuracy"] == ""
    assert shared.clients[0].expected is not None
    assert float(rows[0]["expected_cost"]) == shared.clients[0].expected.cost


def test_a_risk_says_what_it_rests_on() -> None:
    sizes = {0: 60, 1: 30, 2: 30}
    parts = [by_hand(np.tile([[0.9, 0.9, 1.0]], (n, 1)), np.ones((n, 3)), owners=c) for c, n in sizes.items()]
    given = Traces(ExitTrace.concatenate(parts), None, COSTS, range(4))
    found = choose(given, COSTS, "MACs", RiskLimit(0.05), Rule(), "shared", per_client=True)
    assert [each.basis for each in found.clients] == ["per client", "pooled", "pooled", "none"]
    assert [each.weight for each in found.clients] == [60, 30, 30, 0]
    shared = choose(given, COSTS, "MACs", RiskLimit(0.05), Rule(), "shared", per_client=False)
    assert [each.basis for each in shared.clients] == ["pooled", "pooled", "pooled", "none"]
    assert "not per client" in shared.clients[0].policy.note


def test_an_impossible_budget_is_said_before_anything_is_chosen() -> None:
    with pytest.raises(InputError, match="below what leaving at exit 1 costs"):
        choose(traces(), COSTS, "MACs", CostLimit(99.0), Rule(), "shared", per_client=True)
