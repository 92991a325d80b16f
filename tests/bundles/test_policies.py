"""The policies in a bundle: every budget is served, and more is never expected to be worse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from xfed import Run
from xfed.bundles import policies
from xfed.bundles.policies import USUAL, Named, policies_of
from xfed.calibration.outcomes import outcome
from xfed.calibration.reading import read_traces
from xfed.evaluation.traces import ExitTrace
from xfed_runtime.answers import ANSWERS, Answer
from xfed_runtime.inputs import ImageInputs
from xfed_runtime.policy import Policy
from xfed_runtime.runtime import Expectation, Runtime
from xfed_runtime.sessions import Engine


def device(named: Named, macs: list[int]) -> Runtime:
    """A device with these policies."""
    policies = {
        name: Expectation(Policy.from_json(each["policy"]), each["macs"], each["accuracy"])
        for name, each in named.items()
    }
    inputs = ImageInputs((1, 1, 1), 255.0, 0.5, 0.5)
    return Runtime(0, "onnx-stages", cast(Engine, None), inputs, ("a",), tuple(macs), policies)


def served(named: Named, macs: list[int], budget: float, answer: Answer = "own") -> Expectation:
    """What a device with these policies takes for a budget."""
    runtime = device(named, macs)
    chosen = runtime.choose(budget=budget, answer=answer)
    return next(each for each in runtime.policies.values() if each.policy == chosen)


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_budget_is_served_and_more_is_never_expected_to_be_worse(train: Callable[..., Run], answer: Answer) -> None:
    run = train(calibration=0.3)
    macs = run.environment()["network"]["exit_macs"]
    trace = read_traces(run).calibration
    everyone, own = policies_of(run, range(6))
    exits = ["exit-1", "exit-2", "exit-3"]
    assert list(everyone) == ["default", *exits, *(f"{name}-running" for name in exits)]
    assert len({str(named["budget-90%"]) for named in own.values()}) > 1
    for client, named in own.items():
        mine = trace.of_client(client)
        found = [served(named, macs, budget, answer) for budget in np.linspace(macs[0], macs[-1], 40)]
        accuracies = [each.accuracy for each in found]
        assert all(np.diff(accuracies) >= 0), accuracies  # type: ignore[arg-type]
        full = (mine.signals(answer).prediction[:, -1] == mine.labels).mean()
        assert accuracies[-1] >= full
        for each in found:
            assert each.accuracy == pytest.approx(outcome(each.policy, mine, macs).accuracy)
            assert each.macs == pytest.approx(outcome(each.policy, mine, macs).cost)
        assert named["exit-1"]["macs"] == macs[0]
        assert named["default"]["policy"] == USUAL.to_json()


def test_every_rung_of_a_ladder_has_a_twin_that_devices_find(train: Callable[..., Run]) -> None:
    run = train(calibration=0.3)
    differ = 0
    for named in policies_of(run, range(6))[1].values():
        ready = device(named, list(run.exit_macs))
        for name in [name for name in named if name != "default" and not name.endswith("-running")]:
            first, twin = (ready.policies[each].policy for each in (name, f"{name}-running"))
            assert ready.choose(name, answer="running") == twin
            assert ready.choose(f"{name}-running", answer="own") == first
            differ += first.threshold != twin.threshold
    assert differ


def test_a_client_without_calibration_samples_expects_what_all_do(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(calibration=0.3)
    traces = read_traces(run)
    rest = ExitTrace.concatenate([traces.calibration.of_client(client) for client in (0, 2, 3)])
    monkeypatch.setattr(policies, "read_traces", lambda _: replace(traces, calibration=rest))
    _, own = policies_of(run, [1])
    full = run.environment()["network"]["exit_macs"]
    each = [outcome(Policy("fixed", exit=3), rest.of_client(client), full).accuracy for client in (0, 2, 3)]
    assert own[1]["exit-3"]["accuracy"] == pytest.approx(np.mean(each))
    assert own[1]["exit-3"]["macs"] == full[-1]


def test_calibrated_policies_are_the_default(train: Callable[..., Run]) -> None:
    run = train(calibration=0.3)
    folder = run.path / "policies"
    folder.mkdir()
    mine, shared = Policy("margin", threshold=0.25), Policy("entropy", threshold=0.5, answer="running")
    mine.write(folder / "client-000001.json")
    shared.write(folder / "shared.json")
    everyone, own = policies_of(run, [0, 1])
    assert everyone["default"]["policy"] == own[0]["default"]["policy"] == shared.to_json()
    assert own[1]["default"]["policy"] == mine.to_json()


@pytest.mark.parametrize("changes", [{"calibration": 0}, {"exits": "last", "calibration": 0.3}])
def test_nothing_to_calibrate_with(train: Callable[..., Run], changes: dict[str, object]) -> None:
    run = train(method="fedper", **changes)
    everyone, own = policies_of(run, [0])
    unknown = {"policy": USUAL.to_json(), "macs": None, "accuracy": None}
    assert own == {0: {"default": unknown}}
    for number, macs in enumerate(run.environment()["network"]["exit_macs"], 1):
        assert everyone[f"exit-{number}"] == {
            "policy": Policy("fixed", exit=number).to_json(),
            "macs": macs,
            "accuracy": None,
        }
