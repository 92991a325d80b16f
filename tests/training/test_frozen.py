"""Exits on a frozen backbone: the numbers of running it in every epoch, at the price of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.builders import small
from xfed.data.dataset import Dataset
from xfed.data.views import View
from xfed.models.costs import count_costs
from xfed.models.layout import Layout, ModelState
from xfed.models.network import EarlyExitNetwork, Exit, StageState
from xfed.models.parts import Parts
from xfed.training import frozen
from xfed.training.frozen import FrozenFeatures
from xfed.training.objectives import JointExits
from xfed.training.trainer import Meter, Phase, Stream, Trainer

STREAM = Stream(seed=1, client=0, round=1)
HEADS = Phase(JointExits(), epochs=4, rate=0.1, parts=Parts.EXITS)
BATCH = 8


def trainer_of(network: EarlyExitNetwork, samples: int, kind: Any = "image") -> tuple[Trainer, View]:
    generator = torch.Generator().manual_seed(2)
    shape = (3, 32, 32) if kind == "image" else (9,)
    inputs = torch.randint(1, 50, (samples, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 5, (samples,), generator=generator)
    data = Dataset("some", inputs, labels, tuple("abcde"), kind=kind)
    costs = count_costs(network, data.card.example())
    return Trainer(network, Layout.of(network), costs, torch.device("cpu"), BATCH), View(data, torch.arange(samples))


def both_ways(trainer: Trainer, view: View, phase: Phase = HEADS) -> tuple[ModelState, Meter, ModelState, Meter]:
    """Train with features kept, if they may be, and without."""
    initial, ours, theirs = trainer.snapshot(), Meter(), Meter()
    kept = trainer.train(initial, view, [phase], STREAM, ours)
    with patch.object(FrozenFeatures, "apply_to", lambda *_: False):
        plain = trainer.train(initial, view, [phase], STREAM, theirs)
    assert not torch.equal(plain.parameters, initial.parameters)
    return kept, ours, plain, theirs


@pytest.mark.parametrize("samples", [24, 29, 25], ids=["even batches", "a smaller one", "a single sample last"])
@pytest.mark.parametrize("norm", ["none", "group"])
def test_the_same_numbers_for_fewer_macs(norm: str, samples: int) -> None:
    trainer, view = trainer_of(small("convnet", norm=norm), samples)
    kept, ours, plain, theirs = both_ways(trainer, view)
    assert torch.allclose(kept.parameters, plain.parameters, rtol=0, atol=1e-6)
    assert ours.loss == pytest.approx(theirs.loss, abs=1e-6)
    assert ours.samples == theirs.samples == 4 * samples
    exits, backbone = 3 * 8 * 5, trainer.costs.forward(range(3)) - 3 * 8 * 5
    assert theirs.macs == 4 * samples * (backbone + 2 * exits)
    # The backbone runs in the first epoch; a batch of one runs in every epoch, and its sample once more in a pair.
    extra = 3 * backbone + 2 * (backbone + exits) if samples == 25 else 0
    assert ours.macs == samples * backbone + 4 * samples * 2 * exits + extra


def test_text_is_kept_too() -> None:
    trainer, view = trainer_of(small("transformer", dropout=0.0), 20, "text")
    kept, ours, plain, theirs = both_ways(trainer, view)
    assert torch.allclose(kept.parameters, plain.parameters, rtol=0, atol=1e-6)
    assert ours.macs < theirs.macs


class HiddenDropout(nn.Module):
    """A user's layer that draws random numbers without a module that says so."""

    def forward(self, maps: Tensor) -> Tensor:
        return F.dropout(maps, 0.5, self.training)


class TwoLayers(Exit):
    """An exit that is more than one linear layer behind its features."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.before = nn.Linear(width, width)

    def forward(self, state: StageState) -> tuple[Tensor, Tensor]:
        features = self.before(self.pool(state))
        return features, self.linear(features)


def with_batch_norm() -> EarlyExitNetwork:
    return small("convnet", norm="batch")


def with_hidden_dropout() -> EarlyExitNetwork:
    network = small("convnet")
    network.stages[1].append(HiddenDropout())
    return network


def with_other_exits() -> EarlyExitNetwork:
    network = small("convnet")
    return EarlyExitNetwork(list(network.stages), [TwoLayers(8, 5) for _ in range(3)], network.places)


@pytest.mark.parametrize("build", [with_batch_norm, with_hidden_dropout, with_other_exits])
def test_what_changes_between_epochs_is_not_kept(build: Any) -> None:
    torch.manual_seed(1)
    trainer, view = trainer_of(build(), 20)
    kept, ours, plain, theirs = both_ways(trainer, view)
    assert torch.equal(kept.parameters, plain.parameters)
    assert torch.equal(kept.statistics, plain.statistics)
    assert ours.macs == theirs.macs


def test_more_than_memory_allows_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "LIMIT", 20 * 3 * 8 * 4 - 1)  # one byte less than 20 samples need
    trainer, view = trainer_of(small("convnet"), 20)
    kept, ours, plain, theirs = both_ways(trainer, view)
    assert torch.equal(kept.parameters, plain.parameters)
    assert ours.macs == theirs.macs


def test_only_active_exits_are_kept_and_a_training_backbone_never() -> None:
    trainer, view = trainer_of(small("convnet"), 20)
    kept, ours, plain, theirs = both_ways(trainer, view, replace(HEADS, exits=[1]))
    assert torch.allclose(kept.parameters, plain.parameters, rtol=0, atol=1e-6)
    assert ours.macs == 20 * (trainer.costs.forward([1]) - 40) + 4 * 20 * 2 * 40
    _, ours, _, theirs = both_ways(trainer, view, replace(HEADS, parts=Parts.MODEL))
    assert ours.macs == theirs.macs
