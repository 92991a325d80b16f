"""Policies: simulated and run alike, exact at their thresholds, refused where they do not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xfed_runtime.answers import ANSWERS, Answering, Signals, signals
from xfed_runtime.device import Latencies
from xfed_runtime.policy import Policy, PolicyError, simulate

LATENCIES = Latencies.of([1.0, 3.0, 6.0, 10.0])


def trace(logits: Sequence[np.ndarray], answer: str = "own") -> Signals:
    answering = Answering(answer)  # type: ignore[arg-type]
    exits = [signals(answering.add(each)) for each in logits]
    names = ("prediction", "confidence", "margin", "entropy")
    return Signals(*(np.stack([getattr(each, name) for each in exits], axis=1) for name in names))


def predictions(rows: Sequence[Sequence[int]]) -> Signals:
    """Signals that differ in nothing but the prediction."""
    half = np.full(np.shape(rows), 0.5, dtype=np.float32)
    return Signals(np.array(rows), half, half, half)


def confidences(rows: Sequence[Sequence[float]]) -> Signals:
    values = np.array(rows, dtype=np.float32)
    return Signals(np.zeros(values.shape, dtype=np.int64), values, values, 1 - values)


def run(policy: Policy, logits: Sequence[np.ndarray], latencies: Latencies | None = None) -> np.ndarray:
    """Carry a policy out the way a device does: exit after exit, with the samples that are left."""
    answering, decider = Answering(policy.answer), policy.start(len(logits), latencies)
    taken = np.full(len(logits[0]), -1)
    left = np.arange(len(logits[0]))
    for j, each in enumerate(logits):
        leaves = decider.leaves(j, signals(answering.add(each[left])))
        taken[left[leaves]] = j
        decider.keep(~leaves)
        answering.keep(np.flatnonzero(~leaves))
        left = left[~leaves]
        if not len(left):
            break
    return taken


POLICIES = st.one_of(
    st.builds(
        Policy,
        st.sampled_from(["confidence", "margin"]),
        threshold=st.floats(0, 1) | st.tuples(*[st.floats(0, 1)] * 3),
        enabled=st.none() | st.tuples(*[st.booleans()] * 4),
        answer=st.sampled_from(ANSWERS),
    ),
    st.builds(Policy, st.just("entropy"), threshold=st.floats(0, 2), answer=st.sampled_from(ANSWERS)),
    st.builds(
        Policy, st.just("patience"), patience=st.integers(1, 4), enabled=st.none() | st.tuples(*[st.booleans()] * 4)
    ),
    st.builds(Policy, st.just("fixed"), exit=st.integers(1, 4)),
    st.builds(
        Policy,
        st.just("anytime"),
        deadline_ms=st.floats(0.1, 20),
        enabled=st.none() | st.tuples(*[st.booleans()] * 4),
    ),
)


@given(POLICIES, st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_simulating_equals_running(policy: Policy, samples: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits = [generator.normal(0, 3, (samples, 3)).astype(np.float32) for _ in range(4)]
    simulated = simulate(policy, trace(logits, policy.answer), LATENCIES)
    assert run(policy, logits, LATENCIES).tolist() == simulated.tolist()


@given(POLICIES)
def test_a_policy_survives_its_file(policy: Policy) -> None:
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


def test_strict_comparison() -> None:
    rows = confidences([[0.5, 0.75, 0.9], [0.75, 0.2, 0.1]])
    assert simulate(Policy("confidence", threshold=0.5), rows).tolist() == [1, 0]
    assert simulate(Policy("margin", threshold=0.75), rows).tolist() == [2, 2]
    assert simulate(Policy("entropy", threshold=0.25), rows).tolist() == [2, 2], "0.25 is not < 0.25"
    assert simulate(Policy("entropy", threshold=0.26), rows).tolist() == [1, 0]


def test_zero_is_exit_one_and_one_is_the_full_model() -> None:
    saturated = trace([np.array([[200.0, 0, 0], [0.0, 0, 0]])] * 3)
    assert saturated.confidence[0].tolist() == [1.0] * 3
    assert simulate(Policy("confidence", threshold=0.0), saturated).tolist() == [0, 0]
    assert simulate(Policy("confidence", threshold=1.0), saturated).tolist() == [2, 2]
    assert simulate(Policy("entropy", threshold=0.0), saturated).tolist() == [2, 2]


def test_a_threshold_between_two_neighbouring_floats_tells_them_apart() -> None:
    low = np.float32(0.7)
    high = np.nextafter(low, np.float32(1))
    rows = confidences([[low, 1], [high, 1]])
    assert simulate(Policy("confidence", threshold=(float(low) + float(high)) / 2), rows).tolist() == [1, 0]


def test_thresholds_by_exit_and_mask() -> None:
    rows = confidences([[0.6, 0.6, 0.6, 0.6]])
    assert simulate(Policy("confidence", threshold=(0.7, 0.5, 0.1)), rows).tolist() == [1]
    masked = Policy("confidence", threshold=0.0, enabled=(False, False, True, False))
    assert simulate(masked, rows).tolist() == [2]
    assert simulate(Policy("confidence", threshold=0.0, enabled=(False,) * 4), rows).tolist() == [3]
    assert masked.thresholds(4).tolist() == [np.inf, np.inf, 0.0]
    entropy = Policy("entropy", threshold=(0.1, 0.2, 0.3), enabled=(True, False, True, True))
    assert entropy.thresholds(4).tolist() == [0.1, -np.inf, 0.3]


def test_patience_counts_as_pabee() -> None:
    rows = predictions([[1, 1, 1, 1], [1, 2, 2, 2], [1, 2, 3, 3], [1, 1, 2, 2]])
    assert simulate(Policy("patience", patience=1), rows).tolist() == [1, 2, 3, 1]
    assert simulate(Policy("patience", patience=2), rows).tolist() == [2, 3, 3, 3]
    # An exit that may not be left still counts: the first sample has agreed twice when exit 3 lets it go.
    masked = Policy("patience", patience=1, enabled=(True, False, True, True))
    assert simulate(masked, rows).tolist() == [2, 2, 3, 3]


def test_fixed_exit() -> None:
    rows = confidences([[0.1] * 4, [0.9] * 4])
    assert simulate(Policy("fixed", exit=3), rows).tolist() == [2, 2]
    assert simulate(Policy("fixed", exit=4), rows).tolist() == [3, 3]


def test_a_single_exit_always_answers() -> None:
    rows = confidences([[0.1], [0.9]])
    for policy in (Policy("confidence", threshold=1.0), Policy("margin", threshold=()), Policy("patience", patience=3)):
        assert simulate(policy, rows).tolist() == [0, 0]


@pytest.mark.parametrize(("deadline", "exit_taken"), [(0.5, 0), (2.9, 0), (3.0, 1), (6.5, 2), (9.9, 2), (10.0, 3)])
def test_a_deadline_by_the_table(deadline: float, exit_taken: int) -> None:
    rows = confidences([[0.5] * 4])
    assert simulate(Policy("anytime", deadline_ms=deadline), rows, LATENCIES).tolist() == [exit_taken]


def test_a_deadline_by_the_clock() -> None:
    decider = Policy("anytime", deadline_ms=8.0).start(4, LATENCIES)
    exit_two = confidences([[0.5], [0.5]])[:, 0]
    assert decider.leaves(1, exit_two, elapsed_ms=5.1).tolist() == [True, True], "3 more would make 8.1"
    assert decider.leaves(1, exit_two, elapsed_ms=4.9).tolist() == [False, False]


def test_a_deadline_looks_ahead_to_the_next_exit_that_may_be_left() -> None:
    masked = Policy("anytime", deadline_ms=6.5, enabled=(True, True, False, True))
    assert simulate(masked, confidences([[0.5] * 4]), LATENCIES).tolist() == [1], "after exit 2 comes exit 4, at 10 ms"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "a policy is a JSON object, not list"),
        ({}, "a policy needs 'kind'"),
        ({"kind": "luck"}, "policy kind is 'luck'; allowed: confidence, entropy"),
        ({"kind": ["luck"]}, "policy kind is"),
        ({"kind": {}}, "policy kind is"),
        ({"kind": "fixed", "exit": 1, "colour": 1}, "a policy has no 'colour'"),
        ({"kind": "confidence"}, "needs 'threshold'"),
        ({"kind": "confidence", "threshold": 1.5}, "threshold is 1.5; allowed for confidence: numbers from 0 to 1"),
        ({"kind": "margin", "threshold": [0.5, -1]}, "threshold is -1"),
        ({"kind": "confidence", "threshold": "0.5"}, "threshold is '0.5'"),
        ({"kind": "confidence", "threshold": True}, "threshold is True"),
        ({"kind": "entropy", "threshold": float("nan")}, "threshold is nan; allowed for entropy: numbers from 0"),
        ({"kind": "confidence", "threshold": 0.5, "exit": 1}, "takes 'threshold', not 'exit'"),
        ({"kind": "confidence", "threshold": 10**400}, "threshold is 1000"),
        ({"kind": "entropy", "threshold": 10**400}, "threshold is 1000"),
        ({"kind": "patience", "patience": 0}, "patience is 0; allowed: whole numbers from 1"),
        ({"kind": "fixed", "exit": 1.5}, "exit is 1.5"),
        ({"kind": "anytime", "deadline_ms": 0}, "deadline_ms is 0; allowed: numbers above 0"),
        ({"kind": "fixed", "exit": 1, "enabled": [1, 0]}, "enabled is"),
        ({"kind": "fixed", "exit": 1, "answer": "mine"}, "answer is 'mine'; allowed: own, running"),
        ({"kind": "fixed", "exit": 1, "answer": ["own"]}, "answer is"),
        ({"kind": "fixed", "exit": 1, "note": 3}, "note is 3"),
    ],
)
def test_what_is_refused(value: Any, sentence: str) -> None:
    with pytest.raises(PolicyError, match=sentence.replace("[", r"\[")):
        Policy.from_json(value)


def test_what_does_not_fit_the_network() -> None:
    with pytest.raises(PolicyError, match="2 thresholds, but the network 4 exits; allowed: one for all, or 3"):
        Policy("confidence", threshold=(0.1, 0.2)).start(4)
    with pytest.raises(PolicyError, match="3 exits, but the network has 4"):
        Policy("fixed", exit=1, enabled=(True, True, True)).start(4)
    with pytest.raises(PolicyError, match="exit 5, but the network has 4"):
        Policy("fixed", exit=5).start(4)
    with pytest.raises(PolicyError, match="table of latencies"):
        Policy("anytime", deadline_ms=5).start(4)
    with pytest.raises(PolicyError, match="latencies for 2 exits"):
        Policy("anytime", deadline_ms=5).start(4, Latencies.of([1, 2]))


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    policy = Policy("confidence", threshold=0.8, note="by hand")
    policy.write(path)
    expected = {"kind": "confidence", "threshold": 0.8, "answer": "own", "note": "by hand"}
    assert json.loads(path.read_text()) == expected
    assert Policy.read(path) == policy
    for text in ("{", "1" * 5000, "[" * 100_000):
        path.write_text(text)
        with pytest.raises(PolicyError, match=r"policy\.json' cannot be read"):
            Policy.read(path)
    path.write_text('{"kind": "fixed"}')
    with pytest.raises(PolicyError, match=r"policy\.json': a policy of kind 'fixed' needs 'exit'"):
        Policy.read(path)
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.read(tmp_path / "missing.json")
