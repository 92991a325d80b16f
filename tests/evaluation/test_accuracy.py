"""Evaluating many clients in one pass gives what evaluating each by itself gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.bits import differences
from tests.conftest import tiny
from xfed import Run, run
from xfed.data.views import ClientData
from xfed.evaluation.summary import weights_of
from xfed.federation.host import Host
from xfed.federation.loop import Federation
from xfed.federation.plan import CLIENTS_TOGETHER, SAMPLES_TOGETHER, Plan
from xfed.running import partition_of


def logits_one_by_one(trained: Run, client: int, part: str) -> list[np.ndarray]:
    """Run a client's saved network over its samples, with nothing of the evaluation code."""
    dataset = trained.dataset()
    view = getattr(ClientData.of(dataset, partition_of(trained.experiment, dataset)[client]), part)
    with torch.no_grad():
        outputs = trained.model(client)(dataset.normalise(dataset.inputs[view.indices]))
    return [outputs.logits[j].numpy() for j in sorted(outputs.logits)]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", {}),
        ("fedper", {}),
        ("xfed", {}),
        ("local", {}),
        ("fedrod", {}),
        ("fedbabu", {}),
        ("fedper", {"model": "resnet18", "resnet18": {"width": 4}}),
        ("fedper", {"model": "resnet18", "resnet18": {"width": 4}, "bn_statistics": "aggregate"}),
    ],
)
def test_traces_hold_what_each_client_s_own_network_answers(
    train: Callable[..., Run], method: str, changes: dict[str, Any]
) -> None:
    trained = train(method=method, rounds=2, **changes)
    for part in ("test", "calibration"):
        trace = trained.trace(part, 2)
        assert trace.clients == list(range(6))
        for client in trace.clients:
            found = trace.of_client(client)
            logits = logits_one_by_one(trained, client, part)
            for j, each in enumerate(logits):
                ordered = np.sort(each, axis=1)
                clear = ordered[:, -1] - ordered[:, -2] > 1e-5
                assert (found.own.prediction[clear, j] == each.argmax(1)[clear]).all()
                shifted = np.exp(each.astype(np.float64) - each.max(1, keepdims=True))
                assert found.own.confidence[:, j] == pytest.approx(1 / shifted.sum(1), abs=2e-5)
    last = trained.summary().last
    test = trained.trace("test", 2)
    right = [(test.of_client(c).own.prediction == test.of_client(c).labels[:, None]).mean(0) for c in range(6)]
    assert last.accuracies == pytest.approx(np.array(right))


def test_no_calibration_share_no_calibration_trace(train: Callable[..., Run]) -> None:
    trained = train(calibration=0.0, rounds=1)
    assert trained.trace("test", 1) is not None
    assert trained.trace("calibration", 1) is None


def test_a_personal_model_that_did_not_change_is_not_evaluated_again(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    original = Host.evaluate
    monkeypatch.setattr(
        Host,
        "evaluate",
        lambda self, tasks, states: asked.append([t.client for t in tasks]) or original(self, tasks, states),
    )
    settings: dict[str, Any] = {"method": "local", "rounds": 6, "eval_every": 1, "clients": 6, "sample": 0.34}
    trained = train(**settings)
    cohorts = [set(Plan(6, 2, 1, 1, [9] * 6, [1] * 6, 1).cohort(r).clients) for r in range(1, 7)]
    seen: set[int] = set()
    for round, evaluated in enumerate(asked, start=1):
        # Again: who has just trained, and those without a model of their own, who share a pass; at the end everyone.
        fresh = cohorts[round - 1] | (set(range(6)) - seen)
        assert set(evaluated) == (set(range(6)) if round == 6 else fresh)
        seen |= cohorts[round - 1]

    monkeypatch.setattr(Federation, "_known", property(lambda _: {}, lambda _, __: None), raising=False)
    assert differences(trained, train("every time", **settings)) == []


def test_groups_are_bounded_by_clients_and_samples() -> None:
    sizes = [SAMPLES_TOGETHER, 1, SAMPLES_TOGETHER - 1, *[1] * (CLIENTS_TOGETHER + 1)]
    plan = Plan(1, 1, 1, 1, sizes, sizes, seed=1)
    assert [len(group) for group in plan.groups()] == [1, 2, CLIENTS_TOGETHER, 1]
    assert [client for group in plan.groups() for client in group] == list(range(len(sizes)))


def test_a_sample_is_fixed_and_half_of_it_takes_part() -> None:
    plan = Plan(5, 10, 1, 1, [4] * 5_000, [1] * 5_000, seed=1)
    assert len(plan.evaluated) == len(set(plan.evaluated)) == 1_000
    taking_part = {client for r in range(1, 6) for client in plan.cohort(r).clients}
    # at most 50 ever take part, fewer than half of the sample: all of them are in it
    assert taking_part <= set(plan.evaluated)
    small = Plan(5, 10, 1, 1, [4] * 5_000, [1] * 5_000, seed=1, eval_clients=20)
    assert len(taking_part & set(small.evaluated)) == 10
    assert small.evaluated == Plan(5, 10, 1, 1, [4] * 5_000, [1] * 5_000, seed=1, eval_clients=20).evaluated
    everyone = Plan(5, 10, 1, 1, [4] * 50, [1] * 50, seed=1, eval_clients=80)
    assert everyone.evaluated == tuple(range(50))


def test_rows_of_a_sample_count_for_the_clients_they_stand_for() -> None:
    # 2 of 10 trained and 1 of 90 untrained clients evaluated: weights 10 / 2, 10 / 2, 90 / 1
    assert weights_of(np.array([True, False, True]), 10, 100).tolist() == [5, 90, 5]


def test_a_sampled_run_reports_the_estimate_for_all_and_both_kinds_apart(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"clients": 12, "sample": 0.25, "rounds": 2, "method": "fedper"}
    whole = run(tiny(out=tmp_path / "whole", **changes), progress=False)
    part = run(tiny(out=tmp_path / "part", eval_clients=6, **changes), progress=False)
    last, full = part.summary().last, whole.summary().last
    rows = sorted(int(path.stem.removeprefix("client-")) for path in (part.path / "models").glob("client-*"))
    assert len(rows) == 6
    assert last.accuracies == pytest.approx(full.accuracies[rows])
    trained = full.trained[rows]
    means = full.accuracies[rows].mean(1)
    expected = (full.trained.sum() * means[trained].mean() + (~full.trained).sum() * means[~trained].mean()) / 12
    assert last.mean == pytest.approx(expected)
    assert last.only(trained=True).mean == pytest.approx(means[trained].mean())
