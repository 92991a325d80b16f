"""X-FED+: the same messages as X-FED, and each addition seen to do what it says."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.algorithms.conftest import ByteEngine
from tests.bits import differences
from tests.conftest import tiny
from xfed import Run, run
from xfed.algorithms.common.selection import SCHEDULES
from xfed.data.dealing.partition import open_partition
from xfed.data.views import ClientData
from xfed.errors import InputError
from xfed.models.convnet import ConvNet
from xfed.models.network import EarlyExitNetwork

PLAIN: dict[str, Any] = {
    "refit": 0,
    "answers": "own",
    "xfed-plus": {
        "schedule": "linear",
        "unselected": "idle",
        "gamma": 0,
        "teachers": "participants",
        "mix": "end",
        "kd_epochs": "all",
    },
}


def test_messages_are_those_of_xfed(engines: list[ByteEngine]) -> None:
    """Names, bytes and values of all messages but the numbers in the tensors; and in round 1 what is sent, whole."""
    for method in ("xfed", "xfed-plus"):
        run(tiny(method=method, rounds=3, seed=4), progress=False)
    ours, theirs = engines[1], engines[0]
    for mine, other in ((ours.downloads, theirs.downloads), (ours.uploads, theirs.uploads)):
        assert len(mine) == len(other) > 0
        for one, two in zip(mine, other, strict=True):
            assert one.nbytes == two.nbytes
            assert {n: (t.shape, t.dtype) for n, t in one.tensors.items()} == {
                n: (t.shape, t.dtype) for n, t in two.tensors.items()
            }
            assert one.values.keys() == two.values.keys()
    assert all(torch.equal(t, theirs.downloads[0].tensors[n]) for n, t in ours.downloads[0].tensors.items())


def test_without_its_additions_it_is_xfed(train: Callable[..., Run]) -> None:
    assert differences(train("a", method="xfed"), train("b", method="xfed-plus", **PLAIN)) == []


def test_exits_apart_leave_the_backbone_alone(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two shallow exits one trains by selection; the other trains apart."""
    monkeypatch.setitem(SCHEDULES, "linear", lambda t, rounds: Fraction(1, 2))
    settings: dict[str, Any] = {**PLAIN, "method": "xfed-plus", "rounds": 1}
    idle = train("idle", **settings)
    apart = train("apart", **{**settings, "xfed-plus": {**PLAIN["xfed-plus"], "unselected": "detached"}})
    backbone, before = (each.directory.checkpoints.read().tensors["model.parameters"] for each in (apart, idle))
    torch.testing.assert_close(backbone, before, atol=1e-6, rtol=0)
    moved = [
        not torch.equal(apart.own_tensors(c)["exits.1.linear.weight"], idle.own_tensors(c)["exits.1.linear.weight"])
        for c in range(6)
    ]
    assert any(moved), "exits that were not selected trained"


def test_with_one_epoch_nothing_repeats_and_nobody_teaches(train: Callable[..., Run]) -> None:
    """Bits and costs are those of a run without distillation; a second epoch has some, the first still none."""
    settings: dict[str, Any] = {"method": "xfed-plus", "rounds": 2}
    silent, repeats, always = ({"lam": 0}, {}, {"kd_epochs": "all"})
    one = [train(f"1 {n}", **settings, **{"xfed-plus": own}) for n, own in enumerate((silent, repeats, always))]
    assert differences(one[0], one[1]) == []
    assert one[2].records()[-1].macs > one[1].records()[-1].macs, "who teaches, computes"
    two = [
        train(f"2 {n}", epochs=2, **settings, **{"xfed-plus": own}) for n, own in enumerate((silent, repeats, always))
    ]
    backbones = [each.directory.checkpoints.read().tensors["model.parameters"] for each in two]
    assert not any(torch.equal(backbones[a], backbones[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_the_prior_is_in_the_bias_of_every_exit(train: Callable[..., Run]) -> None:
    """A client that never trained has the initial exits plus γ log p, counted by hand."""
    found = train(method="xfed-plus", rounds=1, sample=0.2, refit=0)
    partition, labels = open_partition(found.directory.partition), found.dataset().labels.numpy()
    never = int(np.flatnonzero(~found.evaluations()[-1].trained)[0])
    counts = np.bincount(labels[partition[never].train], minlength=10) + 0.1
    initial = found.network().state_dict()
    for j in range(3):
        bias = found.model(never).state_dict()[f"exits.{j}.linear.bias"]
        expected = np.log(counts / counts.sum())
        if j < 2:
            np.testing.assert_allclose((bias - initial[f"exits.{j}.linear.bias"]).numpy(), expected, atol=1e-5)
        else:  # the last exit is a mixture: what it adds is the prior, up to what everyone's has in common
            others = [c for c in np.flatnonzero(~found.evaluations()[-1].trained).tolist() if c != never]
            assert not any(torch.equal(found.model(c).state_dict()["exits.2.linear.bias"], bias) for c in others)


def test_refitted_exits_answer_training_samples_better(train: Callable[..., Run]) -> None:
    """The fit lowers the loss on training samples, on a backbone that stays what it is."""
    plain, fitted = (train(f"rho {rho}", method="fedper", refit=rho) for rho in (0, 0.003))
    before = plain.directory.checkpoints.read().tensors["model.parameters"]
    assert torch.equal(before, fitted.directory.checkpoints.read().tensors["model.parameters"]), "training is the same"
    dataset, partition = plain.dataset(), open_partition(plain.directory.partition)
    for client in range(3):
        [(_, inputs, labels)] = ClientData.of(dataset, partition[client]).train.in_order(10**6)
        losses = []
        for each in (plain, fitted):
            with torch.no_grad():
                logits = each.model(client)(inputs).logits
            losses.append([torch.nn.functional.cross_entropy(z, labels).item() for z in logits.values()])
        assert np.all(np.array(losses[1]) < np.array(losses[0]))
    assert fitted.records()[-1].tuning_macs > 0


def test_refit_needs_personal_exits() -> None:
    with pytest.raises(InputError, match=r"refit is 0.03, but method 'fedavg' has no personal exits; allowed: 0"):
        run(tiny(method="fedavg", refit=0.03), progress=False)


def test_both_kinds_of_answers_are_counted(train: Callable[..., Run]) -> None:
    """What the metrics say of running answers is what the trace says; which of them counts is a setting."""
    own, running = train("own", method="fedper"), train("running", method="fedper", answers="running")
    trace = own.trace("test")
    assert trace is not None
    by_hand = [(t.running.prediction == t.labels[:, None]).mean(axis=0) for t in trace.by_client().values()]
    np.testing.assert_allclose(own.evaluations("running")[-1].accuracies, by_hand)
    np.testing.assert_allclose(running.evaluations()[-1].accuracies, by_hand)
    np.testing.assert_allclose(running.evaluations("own")[-1].accuracies, own.evaluations()[-1].accuracies)


def test_the_newest_round_is_the_one_that_ends(train: Callable[..., Run]) -> None:
    """Mixed when a round ends, its newest last exits are its participants'."""
    latest, participants = (
        train(teachers, method="xfed-plus", **{"xfed-plus": {"teachers": teachers, "mix": "end"}})
        for teachers in ("latest", "participants")
    )
    assert differences(latest, participants) == ["server/method.newest"]


@pytest.fixture
def deep_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the ConvNet exits that are more than one linear layer."""
    build = ConvNet.build

    def deep(self: ConvNet, *arguments: Any) -> EarlyExitNetwork:
        network = build(self, *arguments)
        return EarlyExitNetwork(network.stages, [Deep(exit.linear) for exit in network.exits], network.places)

    monkeypatch.setattr(ConvNet, "build", deep)


class Deep(nn.Module):
    """An exit with a layer before the last."""

    def __init__(self, last: nn.Linear) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(last.in_features, last.in_features), last

    def forward(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.relu(self.inner(maps.mean(dim=(2, 3))))
        return features, self.last(features)


@pytest.mark.usefixtures("deep_exits")
def test_exits_of_any_kind_without_prior_and_refit(train: Callable[..., Run]) -> None:
    assert train(method="xfed-plus", refit=0, rounds=2, **{"xfed-plus": {"gamma": 0}}).finished
    for own, sentence in (
        ({}, r"xfed-plus.gamma is 1, which needs exits that are one linear layer; allowed: 0"),
        ({"gamma": 0, "schedule": "linear"}, r"'detached' and xfed-plus.schedule 'linear', which needs exits .* idle"),
    ):
        with pytest.raises(InputError, match=sentence):
            train("refused", method="xfed-plus", refit=0, **{"xfed-plus": own})
