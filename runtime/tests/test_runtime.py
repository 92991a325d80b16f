"""A network that answers: order, pieces, budgets and deadlines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from xfed_runtime.answers import signals, softmax
from xfed_runtime.device import Device, Latencies
from xfed_runtime.inputs import ImageInputs, InputsError
from xfed_runtime.manifest import BundleError
from xfed_runtime.measuring import measure
from xfed_runtime.policy import Policy, PolicyError
from xfed_runtime.runtime import LARGEST_BATCH, Expectation, Predictions, Runtime
from xfed_runtime.sessions import in_graph_words
from xfed_runtime.walking import Answers


class TwoExits:
    """Takes 2 × 1 × 1 images for logits: the first exit halves them, the second has them as they are."""

    exits = 2

    def __init__(self, together: int | None) -> None:
        self.together = together
        self.sizes: list[int] = []

    def run(self, inputs: NDArray[np.float32], policy: Policy, latencies: Latencies | None, started: float) -> Answers:
        self.sizes.append(len(inputs))
        full = inputs.reshape(len(inputs), 2)
        early = policy.start(2, latencies).leaves(0, signals(softmax(full / 2)))
        logits = np.where(early[:, None], full / 2, full)
        return Answers(logits, softmax(logits), np.where(early, 0, 1), np.full(len(inputs), 1.0))

    def profiles(self) -> list[Path]:
        return []


def runtime(
    policies: dict[str, Expectation] | None = None, device: Device | None = None, together: int | None = None
) -> Runtime:
    given = {"default": Expectation(Policy("confidence", threshold=0.8), None, None)} | (policies or {})
    inputs = ImageInputs((2, 1, 1), scale=8.0, mean=0.0, std=0.125)
    return Runtime(0, "onnx-stages", TwoExits(together), inputs, ("cat", "dog"), (10, 30), given, device)


def images(*pairs: tuple[float, float]) -> NDArray[np.float64]:
    return np.array(pairs).reshape(-1, 2, 1, 1)


def by_hand(found: Predictions) -> list[tuple[int, int, int]]:
    return list(zip(found.labels.tolist(), found.exits.tolist(), found.macs.tolist(), strict=True))


def test_classes_exits_and_costs_in_order() -> None:
    # softmax(8 / 2) = 0.98 leaves; softmax(1 / 2) = 0.62 stays
    found = runtime().predict(images((0, 8), (1, 0), (8, 0)))
    assert by_hand(found) == [(1, 0, 10), (0, 1, 30), (0, 0, 10)]
    np.testing.assert_allclose(found.probabilities[1], [np.e / (1 + np.e), 1 / (1 + np.e)], rtol=1e-6)
    assert len(found) == len(found.ms) == 3


@pytest.mark.parametrize(("together", "sizes"), [(1, [1] * 300), (None, [LARGEST_BATCH, 300 - LARGEST_BATCH])])
def test_many_samples_go_in_pieces(together: int | None, sizes: list[int]) -> None:
    many = np.random.default_rng(1).uniform(0, 8, (300, 2, 1, 1))
    ready = runtime(together=together)
    found = ready.predict(many)
    assert isinstance(ready.engine, TwoExits)
    assert ready.engine.sizes == sizes
    assert found.labels.tolist() == many.reshape(300, 2).argmax(axis=1).tolist()


def test_nothing_in_nothing_out() -> None:
    assert runtime().predict(np.empty((0, 2, 1, 1))).probabilities.shape == (0, 2)


@pytest.mark.parametrize("single", [3.0, np.array(3.0), np.float32(3), None])
def test_a_single_number_is_refused_in_words(single: object) -> None:
    with pytest.raises(InputsError, match="of shape none; this network takes images as numbers"):
        runtime().predict(single)


LADDER = {
    "cheap": Expectation(Policy("confidence", threshold=0.1), 12.0, 0.6),
    "middle": Expectation(Policy("confidence", threshold=0.5), 18.0, 0.7),
    "worse": Expectation(Policy("confidence", threshold=0.6), 17.0, 0.65),
}


@pytest.mark.parametrize(
    ("budget", "threshold"), [("60%", 0.5), (18, 0.5), (17.9, 0.6), ("50 %", 0.1), (1e9, 0.5), ("100%", 0.5)]
)
def test_budget_takes_the_most_accurate_policy_that_fits(budget: float | str, threshold: float) -> None:
    assert runtime(LADDER).choose(budget=budget).threshold == threshold


def test_wishes_that_cannot_be_met() -> None:
    with pytest.raises(InputsError, match=r"no policy of the bundle keeps to 3 MACs.*need 12 \(40.0%\)"):
        runtime(LADDER).choose(budget="10%")
    with pytest.raises(InputsError, match="no policy of own answers with a known cost"):
        runtime().choose(budget="60%")
    for nonsense in ("much", -1, 0, float("nan"), True):
        with pytest.raises(InputsError, match="allowed: mean MACs"):
            runtime(LADDER).choose(budget=nonsense)
    with pytest.raises(InputsError, match="not several"):
        runtime(LADDER).predict(images((0, 1)), policy="cheap", budget=20)
    with pytest.raises(InputsError, match="has no policy 'cheep'; it has: default, cheap"):
        runtime(LADDER).choose("cheep")
    with pytest.raises(InputsError, match="needs this device's latencies"):
        runtime().choose(deadline_ms=5)


def test_a_budget_buys_the_dearest_exit_where_no_accuracy_is_known() -> None:
    exits = {f"exit-{n}": Expectation(Policy("fixed", exit=n), macs, None) for n, macs in ((1, 10.0), (2, 30.0))}
    for budget, exit_number in (("34%", 1), (29.9, 1), ("100%", 2)):
        assert runtime(exits).choose(budget=budget).exit == exit_number


def test_running_answers_have_a_ladder_of_their_own() -> None:
    running = {
        f"{name}-running": Expectation(replace(each.policy, answer="running"), each.macs, (each.accuracy or 0) + 0.1)
        for name, each in LADDER.items()
        if name != "middle"
    }
    ready = runtime(LADDER | running)
    assert ready.choose(budget="60%") == LADDER["middle"].policy
    assert ready.choose(budget="60%", answer="own") == LADDER["middle"].policy
    assert ready.choose(budget="60%", answer="running") == running["worse-running"].policy
    assert ready.choose("cheap", answer="running") == replace(LADDER["cheap"].policy, answer="running")
    assert ready.choose(answer="running").answer == "running"


def test_a_named_policy_gives_way_to_its_twin_for_other_answers() -> None:
    own = Policy("confidence", threshold=0.5, note="at most 18 MACs on average")
    running = Policy("confidence", threshold=0.7, answer="running", note="at most 18 MACs on average")
    ready = runtime({"budget-60%": Expectation(own, 18.0, 0.7), "budget-60%-running": Expectation(running, 17.0, 0.7)})
    assert ready.choose("budget-60%", answer="running") == ready.choose("budget-60%-running") == running
    assert ready.choose("budget-60%-running", answer="own") == ready.choose("budget-60%", answer="own") == own
    assert ready.choose("budget-60%-running", answer="running") == running


def test_what_a_policy_promises_is_not_said_of_other_answers() -> None:
    calibrated = Policy("confidence", threshold=0.5, note="disagreement at most 5.00% with confidence 90%")
    ready = runtime({"default": Expectation(calibrated, 18.0, 0.7)})
    said = "chosen for own answers, and not known to hold for running ones: disagreement at most 5.00%"
    for chosen in (ready.choose(answer="running"), ready.choose(calibrated, answer="running")):
        assert (chosen.threshold, chosen.answer) == (0.5, "running")
        assert chosen.note.startswith(said)
    assert ready.choose(answer="own") == ready.choose(calibrated, answer="own") == calibrated
    assert ready.choose(Policy("fixed", exit=2), answer="running").note == "", "nothing was promised"


def test_a_deadline_may_be_kept_for_more_answers_than_half() -> None:
    device = Device("desk", "test", 1, (1.0, 3.0), (1.0, 3.0), 1, exits_p95_ms=(1.5, 5.0))
    ready = runtime(device=device)
    for deadline, quantile, exit_index in ((3.5, None, 1), (3.5, 0.5, 1), (3.5, 0.95, 0), (5.5, 0.95, 1)):
        assert ready.predict(images((1, 0)), deadline_ms=deadline, quantile=quantile).exits.tolist() == [exit_index]
    with pytest.raises(InputsError, match=r"no latencies for the quantile 0.99"):
        ready.predict(images((1, 0)), deadline_ms=9, quantile=0.99)
    with pytest.raises(PolicyError, match=r"quantile is 0.9; allowed, with kind 'anytime': 0.5, 0.95, 0.99"):
        ready.predict(images((1, 0)), deadline_ms=9, quantile=0.9)
    with pytest.raises(InputsError, match="quantile goes with deadline_ms"):
        ready.predict(images((1, 0)), quantile=0.95)


def test_answers_that_are_no_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Answers(*(np.full((1, 2), np.nan, dtype=np.float32),) * 2, np.zeros(1, dtype=np.int64), np.zeros(1))
    monkeypatch.setattr(TwoExits, "run", lambda *_: nothing)
    with pytest.raises(BundleError, match="client 0 answers with numbers that are not finite"):
        runtime().predict(images((1, 0)))


@pytest.mark.parametrize(("deadline", "exit_index"), [(2.5, 0), (3.5, 1), (0.1, 0)])
def test_deadline_goes_by_the_table(deadline: float, exit_index: int) -> None:
    device = Device("desk", "test", 1, (1.0, 3.0), (1.0, 3.0), 1)
    ready = runtime(device=device)
    assert ready.predict(images((0, 8), (1, 0)), deadline_ms=deadline).exits.tolist() == [exit_index] * 2
    assert isinstance(ready.engine, TwoExits)
    assert ready.engine.sizes == [1, 1], "a deadline is each sample's own"


def test_measuring_visits_every_exit_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[int | None] = []
    plain = TwoExits.run
    monkeypatch.setattr(
        TwoExits, "run", lambda self, x, p, *rest: (visited.append(p.exit), plain(self, x, p, *rest))[1]
    )
    device = measure(runtime(), repetitions=3, warm_up=1)
    assert visited == [1, 2] * 4
    assert device.repetitions == 3
    assert len(device.exits_ms) == len(device.exits_cpu_ms) == 2
    assert device.exits_p95_ms is not None
    assert device.exits_p99_ms is not None
    assert all(a <= b <= c for a, b, c in zip(device.exits_ms, device.exits_p95_ms, device.exits_p99_ms, strict=True))
    assert device.peak_memory_mb is None or 1 < device.peak_memory_mb < 100_000


def test_policies_in_the_words_of_the_graph() -> None:
    infinite = np.inf
    for policy, thresholds, signal in (
        (Policy("confidence", threshold=(0.5, 0.25)), [0.5, 0.25], [1, 0, 0]),
        (Policy("margin", threshold=0.5, enabled=(False, True, True)), [infinite, 0.5], [0, 1, 0]),
        (Policy("entropy", threshold=1.5, enabled=(True, False, True)), [-1.5, infinite], [0, 0, 1]),
        (Policy("fixed", exit=2), [infinite, -infinite], [1, 0, 0]),
        (Policy("fixed", exit=3), [infinite, infinite], [1, 0, 0]),
    ):
        said = in_graph_words(policy, 3)
        assert [each.tolist() for each in said] == [thresholds, signal]
    for kind, needs in (("patience", {"patience": 1}), ("anytime", {"deadline_ms": 1.0})):
        with pytest.raises(PolicyError, match=f"kind '{kind}' needs the format onnx-stages; onnx-if cannot run it"):
            in_graph_words(Policy(kind, **needs), 3)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="leaves at exit 4, but the network has 3"):
        in_graph_words(Policy("fixed", exit=4), 3)


def test_float32_thresholds_let_the_same_numbers_leave() -> None:
    for threshold in (0.8, 0.1, 0.3, 1 / 3, 0.5, 1.0, 0.0):
        near = np.float32(threshold)
        values = np.array([np.nextafter(near, np.float32(-2)), near, np.nextafter(near, np.float32(2))])
        said, _ = in_graph_words(Policy("confidence", threshold=threshold), 2)
        assert (values > said[0]).tolist() == (values.astype(np.float64) > threshold).tolist()
