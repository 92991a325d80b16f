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
from xfed.federation.plan import Plan
from xfed.models.layout import Layout
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
