"""Guaranteed risks, against scipy and over a thousand simulated clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.traces import by_hand
from xfed.calibration.calibrate import Rule
from xfed.calibration.outcomes import outcome
from xfed.calibration.risk import RiskLimit, certified_threshold, certify, certify_shared, most_losses
from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace

STEEPNESS = 0.5
COSTS = (0.275, 1.0)


def client(samples: int, seed: int, owner: int = 0, steepness: float = STEEPNESS) -> ExitTrace:
    """Draw a client whose exit 1 has confidence c ~ U(0, 1) and differs from the full model with a (1 − c).

    So a threshold ε has risk ∫ a (1 − c) dc over (ε, 1) = a (1 − ε)² / 2, and P(leaves at exit 1) = 1 − ε.
    """
    generator = np.random.default_rng(seed)
    confidence = generator.random(samples)
    agrees = generator.random(samples) >= steepness * (1 - confidence)
    ones = np.ones(samples)
    return by_hand(np.stack([confidence, ones], 1), None, owner, full=np.stack([agrees, ones], 1))


def true_risk(threshold: float, steepness: float = STEEPNESS) -> float:
    return steepness * (1 - max(threshold, 0.0)) ** 2 / 2


def true_cost(threshold: float) -> float:
    leaving = 1 - min(max(threshold, 0.0), 1.0)
    return leaving * COSTS[0] + (1 - leaving) * COSTS[1]


@pytest.mark.parametrize("samples", [1, 10, 44, 45, 114, 230, 2000, 20_000])
@pytest.mark.parametrize("risk", [0.01, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("delta", [0.01, 0.1])
def test_binomial_limits_equal_scipys(samples: int, risk: float, delta: float) -> None:
    tails = stats.binom.cdf(np.arange(samples + 1), samples, risk)
    assert most_losses(samples, risk, delta) == int((tails <= delta).sum()) - 1


@pytest.mark.parametrize(("risk", "samples"), [(0.05, 45), (0.02, 114), (0.01, 230)])
def test_smallest_certifiable_risks_of_the_specification(risk: float, samples: int) -> None:
    limit = RiskLimit(risk, 0.1)
    assert limit.samples == samples
    assert most_losses(samples, risk, 0.1) == 0
    assert most_losses(samples - 1, risk, 0.1) == -1


@pytest.mark.parametrize("samples", [100, 500])
def test_a_guarantee_holds_over_a_thousand_clients(samples: int) -> None:
    limit = RiskLimit(0.05, 0.1)
    thresholds = [certified_threshold(client(samples, seed), limit, Rule()) for seed in range(1000)]
    violations = np.mean([true_risk(threshold) > 0.05 for threshold in thresholds if threshold is not None])
    assert None not in thresholds
    assert violations <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 1000)
    assert violations > 0.01, "a guarantee that is never near its limit wastes computation"


def test_a_guarantee_costs_little_more_than_knowing_the_truth() -> None:
    limit = RiskLimit(0.05, 0.1)
    oracle = 1 - np.sqrt(2 * 0.05 / STEEPNESS)
    assert true_risk(oracle) == pytest.approx(0.05)
    thresholds = [certified_threshold(client(2000, seed), limit, Rule()) for seed in range(100)]
    costs = [true_cost(threshold) for threshold in thresholds if threshold is not None]
    assert len(costs) == 100
    assert np.mean(costs) <= 1.1 * true_cost(oracle)


def test_the_last_rejected_threshold_is_taken() -> None:
    # 60 samples; most_losses is 0 at r = 5 %: testing stops above the surest sample that differs.
    confidence = np.linspace(0.99, 0.40, 60)
    agrees = np.ones(60)
    agrees[20] = 0
    trace = by_hand(np.stack([confidence, np.ones(60)], 1), None, full=np.stack([agrees, np.ones(60)], 1))
    threshold = certified_threshold(trace, RiskLimit(0.05, 0.1), Rule())
    assert confidence[20] < threshold < confidence[19]


def test_testing_never_resumes_after_a_failure() -> None:
    # Exit 1 is sure of nothing; exit 2 differs where it is surest, and agreement returns at a lower threshold.
    confidence = np.tile([[0.3, 0.9, 1.0]], (100, 1))
    agrees = np.tile([[1, 0, 1]], (100, 1))
    trace = by_hand(confidence, None, full=agrees)
    assert certified_threshold(trace, RiskLimit(0.05, 0.1), Rule()) == np.inf, "0.2 would be right, but comes too late"


def test_losses_against_labels() -> None:
    right = np.ones((200, 2))
    right[:2, 0] = 0
    confidence = np.stack([np.linspace(0.9, 0.1, 200), np.ones(200)], 1)
    trace = by_hand(confidence, right)
    threshold = certified_threshold(trace, RiskLimit(0.05, 0.1, "error"), Rule())
    assert threshold == -np.inf, "2 errors of 200: P(Bin(200, 5 %) ≤ 2) = 0.2 %"
    full_errs = by_hand(confidence, np.stack([np.ones(200), np.arange(200) % 5 > 0], 1))
    assert certified_threshold(full_errs, RiskLimit(0.05, 0.1, "error"), Rule()) is None


SMALL = [(12 + 2 * number, 0.3 + 0.07 * number) for number in range(10)]
"""Samples and steepness of clients that must share a guarantee: unequal in both."""


@pytest.mark.slow
def test_a_shared_guarantee_holds_for_those_who_use_it() -> None:
    # Large clients nearly always agree: pooled with them, the small ones, who do not, would get too low a threshold.
    limit, draws = RiskLimit(0.05, 0.1), 600
    weights = np.array([samples for samples, _ in SMALL])
    violations, marginal = 0, []
    for draw in range(draws):
        large = [client(400, 10_000 * draw + owner, owner, steepness=0.02) for owner in range(5)]
        small = [
            client(samples, 10_000 * draw + 100 + owner, owner, steepness)
            for owner, (samples, steepness) in enumerate(SMALL, 5)
        ]
        found = certify(ExitTrace.concatenate([*large, *small]), range(15), limit, Rule())
        assert {found[owner].guarantee for owner in range(5)} == {"per client"}
        thresholds = {found[owner].policy.threshold for owner in range(5, 15)}
        (threshold,) = thresholds
        risks = [true_risk(float(threshold), steepness) for _, steepness in SMALL]  # type: ignore[arg-type]
        marginal.append(float(np.average(risks, weights=weights)))
        violations += marginal[-1] > limit.risk
    assert violations / draws <= limit.delta + 3 * np.sqrt(limit.delta * (1 - limit.delta) / draws)
    assert violations > 0, "a guarantee that is never near its limit wastes computation"
    assert np.mean(marginal) > limit.risk / 3


def test_clients_with_few_samples_share_a_guarantee_among_themselves() -> None:
    trace = ExitTrace.concatenate([client(400, 1, owner=0), client(30, 2, owner=1), client(44, 3, owner=2)])
    limit = RiskLimit(0.05, 0.1)
    found = certify(trace, range(4), limit, Rule())
    assert [found[c].guarantee for c in range(4)] == ["per client", "pooled", "pooled", "none"]
    few = ExitTrace.concatenate([trace.of_client(1), trace.of_client(2)])
    assert found[1].policy.threshold == found[2].policy.threshold == certify_shared(few, limit, Rule()).policy.threshold
    assert "guaranteed for client 0 by its 400 calibration samples" in found[0].policy.note
    assert "not per client: from 74 samples of 2 clients together" in found[1].policy.note
    assert "client 1 has 30 and 45 are needed" in found[1].policy.note
    assert found[3].policy.threshold == 1.0
    assert "full model: client 3 has no calibration samples" in found[3].policy.note
    assert outcome(found[0].policy, trace.of_client(0), COSTS).disagreement < 0.05


def test_too_few_even_among_themselves_keep_the_full_model() -> None:
    trace = ExitTrace.concatenate([client(400, 1, owner=0), client(20, 2, owner=1), client(20, 3, owner=2)])
    found = certify(trace, range(3), RiskLimit(0.05, 0.1), Rule())
    assert [found[c].guarantee for c in range(3)] == ["per client", "none", "none"]
    assert found[1].policy.threshold == 1.0
    assert "with 40 calibration samples of 2 clients together: at least 45 are needed" in found[1].policy.note


def test_a_client_whose_full_model_errs_keeps_it_without_a_guarantee() -> None:
    good = by_hand(np.tile([[0.9, 1.0]], (100, 1)), np.ones((100, 2)), owners=0)
    bad = by_hand(np.tile([[0.9, 1.0]], (100, 1)), np.zeros((100, 2)), owners=1)
    limit = RiskLimit(0.05, 0.1, "error")
    found = certify(ExitTrace.concatenate([good, bad]), [0, 1], limit, Rule())
    assert [each.guarantee for each in found.values()] == ["per client", "none"]
    assert found[1].policy.threshold == 1.0
    assert "the full model's own loss on them is 100.00%" in found[1].policy.note
    with pytest.raises(InputError, match="cannot be certified for any client"):
        certify(bad, [1], limit, Rule())


def test_too_few_samples_even_together() -> None:
    with pytest.raises(InputError, match=r"cannot be certified for any client: at least 230 are needed"):
        certify(client(40, 1), [0], RiskLimit(0.01, 0.1), Rule())


@pytest.mark.parametrize(("risk", "delta", "culprit"), [(0, 0.1, "risk"), (1, 0.1, "risk"), (0.1, 0, "delta")])
def test_what_is_refused(risk: float, delta: float, culprit: str) -> None:
    with pytest.raises(InputError, match=f"{culprit} is .*; allowed: numbers between 0 and 1"):
        RiskLimit(risk, delta)


@pytest.mark.parametrize("risk", ["5%", None, [0.05], 0.05j])
def test_a_risk_that_is_no_number(risk: Any) -> None:
    with pytest.raises(InputError, match=r"risk is .*; allowed: numbers between 0 and 1"):
        RiskLimit(risk)
    with pytest.raises(InputError, match=r"delta is .*; allowed: numbers between 0 and 1"):
        RiskLimit(0.05, risk)
    assert RiskLimit(np.float32(0.05)).samples == 45, "NumPy's numbers are some"


@pytest.mark.parametrize("loss", ["foo", "", None, ["error"]])
def test_a_loss_that_is_none_is_never_certified(loss: Any) -> None:
    with pytest.raises(InputError, match=r"unknown loss .*; allowed: disagreement, error"):
        RiskLimit(0.05, 0.1, loss)
