"""Corners in which methods went wrong once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn

from tests.bits import contents
from xfed import InputError, Run
from xfed.data.dealing.partition import open_partition
from xfed.federation.host import Host
from xfed.federation.plan import Plan
from xfed.models.layout import Layout, ModelState
from xfed.models.network import EarlyExitNetwork, Exit
from xfed.models.subnetwork import Level, Subnetworks


def test_depthfl_in_rounds_without_a_client_of_the_deepest_level(train: Callable[..., Run]) -> None:
    run = train(method="depthfl", depthfl={"hetero": True}, sample=0.34, rounds=6)
    deepest = {4, 5}  # six clients, three levels by index
    assert any(not cohort & deepest for cohort in cohorts_of(run)), "with the deepest level everywhere, no proof"
    assert run.finished


def cohorts_of(run: Run) -> list[set[int]]:
    e = run.experiment
    sizes = open_partition(run.directory.partition).sizes("train").tolist()
    plan = Plan(e.training.rounds, e.cohort_size, 1, 1, sizes, sizes, e.seed)
    return [set(plan.cohort(round).clients) for round in range(1, e.training.rounds + 1)]


@pytest.mark.parametrize("seed", [1, 2])
def test_fedpac_stays_finite_with_batchnorm(train: Callable[..., Run], seed: int) -> None:
    """Class means on stale statistics, aligned with features on batch statistics, grow a hundredfold per round."""
    run = train(method="fedpac", model="resnet18", resnet18={"width": 4}, rounds=4, sample=1.0, epochs=3, seed=seed)
    centroids = contents(run)["server/method.centroids.3"]
    assert centroids.norm(dim=1).max() < 12


def test_methods_that_tune_at_the_end_compare_no_earlier_round(train: Callable[..., Run]) -> None:
    tuned = train("tuned", method="fedrep", fedrep={"final_head_epochs": 1}).summary()
    assert (tuned.last5, tuned.best) == (None, None)
    plain = train("plain", method="fedrep").summary()
    assert plain.last5 is not None
    assert plain.best is not None


def test_tuning_is_counted(train: Callable[..., Run]) -> None:
    run = train(method="fedbabu", fedbabu={"tuning_epochs": 2}, rounds=2)
    assert [record.tuning_macs > 0 for record in run.records()] == [False, True]
    samples = open_partition(run.directory.partition).sizes("train").sum()
    stages, exits, first = 64 * 36 + 16 * 144 + 4 * 144, 3 * 40, 64 * 36
    assert run.records()[-1].tuning_macs == 2 * samples * (3 * (stages + exits) - first)


def test_widths_are_exact() -> None:
    network = EarlyExitNetwork([nn.Conv2d(3, 90, 3)], [Exit(90, 5)], [0])
    narrow, _ = Subnetworks(network, Layout.of(network)).carve(Level(1, Fraction(7, 10)))
    assert narrow.stages[0].out_channels == 63  # int(0.7 * 90) is 62


def test_local_may_train_everyone_in_every_round(train: Callable[..., Run]) -> None:
    everyone = train("everyone", method="local", local={"everyone": True}, rounds=2)
    assert [record.clients for record in everyone.records()] == [6, 6]
    assert [record.clients for record in train("sampled", method="local", rounds=2).records()] == [3, 3]


def test_fedrods_own_backbone_is_what_is_saved(train: Callable[..., Run]) -> None:
    run = train(method="fedrod", fedrod={"body": "local"}, rounds=2)
    found = contents(run)
    checked = 0
    for client in found["client/versions"]:
        own = found[f"client/{client}/own_backbone"]
        saved = torch.cat([t.flatten() for n, t in run.model(client).state_dict().items() if n.startswith("stages.")])
        assert torch.equal(saved, own)
        checked += 1
    assert checked


@pytest.mark.parametrize(
    ("method", "changes", "sentence"),
    [
        ("local", {}, "method 'local' averages nothing; allowed: average"),
        ("fedamp", {}, "method 'fedamp' averages nothing"),
        ("depthfl", {}, "FedDyn corrects averages in its own way; allowed: average, or depthfl.feddyn false"),
        (
            "fedavg",
            {"server_momentum": 0.5, "server_optimizer": "sgd"},
            "server_momentum goes with",
        ),
        ("fedavg", {"server_lr": 0.5, "server_optimizer": "average"}, "server_lr goes with server_optimizer sgd"),
    ],
)
def test_a_server_optimizer_needs_averages(
    train: Callable[..., Run], method: str, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        train(method=method, **{"server_optimizer": "momentum", **changes})


def test_server_optimizers_run_under_any_averaging_method(train: Callable[..., Run]) -> None:
    plain = contents(train("average", rounds=2))["server/model.parameters"]
    same = contents(train("sgd", rounds=2, server_optimizer="sgd"))["server/model.parameters"]
    torch.testing.assert_close(same, plain)  # a full step to the average is the average
    for kind in ("momentum", "adam"):
        run = train(kind, rounds=2, server_optimizer=kind)
        assert not torch.equal(contents(run)["server/model.parameters"], plain)
        memory = [name for name in contents(run) if name.startswith("server/method.server_optimizer.")]
        assert len(memory) == (1 if kind == "momentum" else 2), "X-FED averages the backbone alone"


@pytest.mark.parametrize(
    ("method", "settings"),
    [("posthoc", {"shallow_epochs": 1}), ("fedrep", {"final_head_epochs": 1}), ("fedbabu", {"tuning_epochs": 1})],
)
def test_tuned_exits_are_evaluated_with_the_statistics_they_were_tuned_with(
    train: Callable[..., Run], method: str, settings: dict[str, int]
) -> None:
    """A client that never trained: one epoch of one batch moves its running mean from 0 by a tenth of the batch's."""
    run = train(
        method=method, model="resnet18", resnet18={"width": 4}, rounds=1, sample=0.2, batch_size=2000, lr=1e-9,
        **{method: settings},
    )  # fmt: skip
    never = int((~run.evaluations()[-1].trained).nonzero()[0][0])
    network, dataset = run.model(never), run.dataset()
    rows = torch.as_tensor(open_partition(run.directory.partition)[never].train)
    order, stem, norm = (network.get_submodule(f"stages.0.{index}") for index in range(3))
    with torch.no_grad():
        maps = stem(order(dataset.normalise(dataset.inputs[rows])))
    torch.testing.assert_close(norm.running_mean, 0.1 * maps.mean(dim=(0, 2, 3)), rtol=1e-4, atol=1e-6)


def test_server_momentum_leaves_what_nobody_held(train: Callable[..., Run]) -> None:
    """Six clients, three levels by index: in a round without the deepest ones, the last stage and exit stay."""
    own = {"hetero": True, "feddyn": False}
    settings: dict[str, Any] = {"method": "depthfl", "depthfl": own, "sample": 0.34, "server_optimizer": "momentum"}
    cohorts = cohorts_of(train("all", rounds=6, **settings))
    round = next(r for r in range(2, 7) if not cohorts[r - 1] & {4, 5} and any(c & {4, 5} for c in cohorts[: r - 1]))
    checkpoints = train("until then", rounds=round, **settings).directory.checkpoints
    before, after = (checkpoints.read(r).tensors["model.parameters"] for r in (round - 1, round))
    layout = Layout.of(train("network", rounds=1).network())
    changed = {name: not torch.equal(*pair) for name, pair in _by_name(layout, before, after).items()}
    assert changed["stages.0.1.weight"]
    assert not any(moved for name, moved in changed.items() if name.startswith(("stages.2.", "exits.2.")))


def _by_name(layout: Layout, *flat: torch.Tensor) -> dict[str, tuple[torch.Tensor, ...]]:
    views = [layout.views(ModelState(each, torch.zeros(0))) for each in flat]
    return {name: tuple(view[name] for view in views) for name in views[0]}


def test_evaluations_that_are_known_cost_nothing(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    spent: dict[int, int] = {}
    original = Host.evaluate

    def evaluate(self: Host, tasks: Any, states: Any) -> Any:
        for result in original(self, tasks, states):
            spent[tasks[0].round] = spent.get(tasks[0].round, 0) + result.macs
            yield result

    monkeypatch.setattr(Host, "evaluate", evaluate)
    run = train(method="local", refit=0.03, rounds=5, eval_every=1, sample=0.34)
    assert {record.round: record.tuning_macs for record in run.records()} == spent
    assert min(spent.values()) > 0
