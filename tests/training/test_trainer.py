"""The training loop: what trains, what is frozen, what it costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import tiny
from tests.models.builders import small
from xfed.data.dataset import Dataset
from xfed.data.views import ClientData, View
from xfed.federation.host import build_trainer
from xfed.models.costs import count_costs
from xfed.models.layout import Layout, ModelState
from xfed.models.parts import Parts
from xfed.running import partition_of
from xfed.training.objectives import Batch, JointExits, Objective, OnRepeats
from xfed.training.trainer import Meter, Phase, Stream, Trainer

STREAM = Stream(seed=1, client=0, round=1)
PHASE = Phase(JointExits(), epochs=2, rate=0.1, momentum=0.9, weight_decay=0.1)


@pytest.fixture(params=["none", "batch"])
def setting(request: pytest.FixtureRequest) -> tuple[Trainer, ModelState, ClientData]:
    experiment = tiny(convnet={"width": 4, "norm": request.param})
    dataset = experiment.dataset_source().load()
    partition = partition_of(experiment, dataset)
    trainer = build_trainer(experiment, dataset.card, "cpu")
    return trainer, trainer.snapshot(), ClientData.of(dataset, partition[0])


def parts_that_moved(trainer: Trainer, before: ModelState, after: ModelState) -> Parts:
    moved = Parts.NONE
    for part in Parts.MODEL | Parts.STATISTICS:
        if not torch.equal(trainer.layout.gather(before, part), trainer.layout.gather(after, part)):
            moved |= part
    return moved


@pytest.mark.parametrize("parts", [Parts.BACKBONE, Parts.EXITS, Parts.LAST_EXIT, Parts.MODEL])
def test_frozen_is_frozen_under_momentum_and_weight_decay(
    setting: tuple[Trainer, ModelState, ClientData], parts: Parts
) -> None:
    trainer, initial, data = setting
    warm_up = replace(PHASE, parts=Parts.MODEL)  # leaves momentum behind, if anything could keep it
    started = trainer.train(initial, data.train, [warm_up], STREAM, Meter())
    both = trainer.train(initial, data.train, [warm_up, replace(PHASE, parts=parts)], STREAM, Meter())
    assert parts_that_moved(trainer, started, both) & ~Parts.STATISTICS == parts


def test_input_model_is_left_alone_and_result_is_repeatable(setting: tuple[Trainer, ModelState, ClientData]) -> None:
    trainer, initial, data = setting
    before = initial.clone()
    first = trainer.train(initial, data.train, [PHASE], STREAM, Meter())
    assert parts_that_moved(trainer, before, initial) == Parts.NONE
    second = trainer.train(initial, data.train, [PHASE], STREAM, Meter())
    assert parts_that_moved(trainer, first, second) == Parts.NONE
    other = trainer.train(initial, data.train, [PHASE], replace(STREAM, round=2), Meter())
    assert Parts.BACKBONE in parts_that_moved(trainer, first, other)


def test_outputs_touch_neither_randomness_nor_statistics(setting: tuple[Trainer, ModelState, ClientData]) -> None:
    trainer, initial, data = setting
    generator = torch.random.get_rng_state()
    meter = Meter()
    outputs = trainer.outputs(initial, data.train, [0, 2], meter)
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert parts_that_moved(trainer, initial, trainer.snapshot()) == Parts.NONE
    assert set(outputs.logits) == {0, 2}
    # Stages: 8² · 9 · 4, 4² · 9 · 16, 2² · 9 · 16; two exits of 4 × 10.
    assert meter.macs == len(data.train) * (64 * 36 + 16 * 144 + 4 * 144 + 2 * 40)


def test_training_cost_by_hand(setting: tuple[Trainer, ModelState, ClientData]) -> None:
    trainer, initial, data = setting
    stages, exits = 64 * 36 + 16 * 144 + 4 * 144, 3 * 40
    everything, exits_only, backbone_only = Meter(), Meter(), Meter()
    trainer.train(initial, data.train, [PHASE], STREAM, everything)
    trainer.train(initial, data.train, [replace(PHASE, parts=Parts.EXITS)], STREAM, exits_only)
    trainer.train(initial, data.train, [replace(PHASE, parts=Parts.BACKBONE)], STREAM, backbone_only)
    seen = 2 * len(data.train)
    assert everything.samples == seen
    # Forward, weight gradients and input gradients; the first convolution needs no gradient of the image.
    assert everything.macs == seen * (3 * (stages + exits) - 64 * 36)
    if trainer.layout.count(Parts.STATISTICS):
        assert exits_only.macs == seen * (stages + 2 * exits)
    else:  # on features that do not change from epoch to epoch
        assert exits_only.macs == seen // 2 * stages + seen * 2 * exits
    assert backbone_only.macs == seen * (3 * stages - 64 * 36 + 2 * exits)


def test_last_small_batch_is_kept_and_every_sample_seen_once_per_epoch(
    setting: tuple[Trainer, ModelState, ClientData],
) -> None:
    trainer, initial, data = setting
    seen: list[list[int]] = []

    class Spy(Objective):
        def __call__(self, batch: Batch) -> Tensor:
            seen.append(batch.positions.tolist())
            return JointExits()(batch)

    trainer.train(initial, data.train, [replace(PHASE, objective=Spy(), epochs=1)], STREAM, Meter())
    assert sorted(position for batch in seen for position in batch) == list(range(len(data.train)))
    assert [len(batch) for batch in seen[:-1]] == [16] * (len(seen) - 1)
    assert len(seen[-1]) == len(data.train) % 16 or 16


def test_terms_on_repeats_count_from_the_second_epoch_on(setting: tuple[Trainer, ModelState, ClientData]) -> None:
    """A term of 1 on 3 epochs: 0 for every sample of the first, 1 for every sample of the others, 2/3 on average."""
    trainer, initial, data = setting
    epochs: list[int] = []

    class One(Objective):
        def __call__(self, batch: Batch) -> Tensor:
            epochs.append(batch.epoch)
            return torch.ones(())

    class Zero(Objective):
        def __call__(self, batch: Batch) -> Tensor:
            return 0 * JointExits()(batch)

    meter = Meter()
    phase = replace(PHASE, objective=Zero() + OnRepeats(One()), epochs=3)
    trainer.train(initial, data.train, [phase], STREAM, meter)
    batches = math.ceil(len(data.train) / 16)
    assert epochs == [1] * batches + [2] * batches
    assert meter.loss == pytest.approx(2 / 3)


class Waits(TorchDispatchMode):
    """Counts operations whose result the host must wait for, if a device computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):  # type: ignore[no-untyped-def]
        name = operation.overloadpacket.__name__
        self.count += name in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive")
        return operation(*arguments, **(keywords or {}))


@pytest.mark.parametrize("kind", ["image", "text"])
def test_training_waits_once_per_phase_however_many_batches_there_are(kind: str) -> None:
    shape, network = ((3, 32, 32), small("convnet")) if kind == "image" else ((9,), small("transformer"))
    inputs = torch.randint(1, 9, (20, *shape), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    data = Dataset("some", inputs, torch.arange(20) % 3, tuple("abc"), kind=kind)  # type: ignore[arg-type]
    found = []
    for size in (20, 4):
        trainer = Trainer(
            network, Layout.of(network), count_costs(network, data.card.example()), torch.device("cpu"), size
        )
        phase = replace(PHASE, clip=1.0)
        view = View(data, torch.arange(20))
        trainer.train(trainer.snapshot(), view, [phase], STREAM, Meter())  # costs are counted once per shape
        with Waits() as waits:
            trainer.train(trainer.snapshot(), view, [phase], STREAM, Meter())
        found.append(waits.count)
    assert found == [1, 1]
