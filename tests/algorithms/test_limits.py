"""Methods that must coincide do, bit for bit, with nothing passing on the side.

Every message goes through bytes and back, and every client gets its own copy of the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import xfed.algorithms.xfed as xfed_method
import xfed.training.distillation as distillation
from tests.algorithms.conftest import ByteEngine
from tests.bits import contents, final_models, spy
from xfed import Run
from xfed.models.layout import Layout
from xfed.models.parts import Parts
from xfed.protocol.words import TrainTask
from xfed.randomness import Purpose, derive

BACKBONE = (1 * 4 * 9 + 4) + 2 * (4 * 4 * 9 + 4)  # three 3 × 3 convolutions of width 4 on grey images
LAST_EXIT = 4 * 10 + 10
SHALLOW_EXITS = 2 * LAST_EXIT


@pytest.mark.parametrize("exits", ["all", "last"])
@pytest.mark.parametrize("teacher", ["frozen", "live"])
def test_xfed_without_its_three_ideas_is_fedper(
    engines: list[ByteEngine], train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, exits: str, teacher: str
) -> None:
    terms = spy(monkeypatch, distillation, "divergence")
    weights = spy(monkeypatch, xfed_method, "match_teachers")
    limit = {"schedule": "fixed", "lam": 0.0, "mu": 1e-6, "teacher": teacher}
    bare = train("xfed", method="xfed", xfed=limit, exits=exits)
    fedper = train("fedper", method="fedper", exits=exits)
    assert weights, "matching ran"
    assert not terms, "with λ = 0 nothing is distilled"
    one, other = final_models(bare), final_models(fedper)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(contents(bare)["metrics/4"], contents(fedper)["metrics/4"])


def test_xfed_as_it_is_differs_from_fedper(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    one, other = final_models(train("xfed")), final_models(train("fedper", method="fedper"))
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_fedavg_with_one_client_is_plain_sgd(
    engines: list[ByteEngine], train: Callable[..., Run], tmp_path: Path
) -> None:
    run = train("fedavg", method="fedavg", clients=1, sample=1.0, rounds=3, epochs=2, lr_decay=0.9)
    experiment, engine = run.experiment, engines[0]
    torch.set_num_threads(1)
    network = experiment.network((1, 8, 8), 10)
    Layout.of(network).bind(network, torch.device("cpu"))  # the same addresses within a vector, hence the same kernels
    train_indices = torch.from_numpy(engine.partition[0].train)
    for round in (1, 2, 3):
        rate = 0.05 * 0.9 ** (round - 1)
        optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=1e-4, fused=True)
        generator = torch.Generator().manual_seed(derive(1, Purpose.BATCHES, 0, round, 0))
        for _ in range(2):
            for positions in torch.randperm(len(train_indices), generator=generator).split(16):
                chosen = train_indices[positions]
                inputs = (engine.dataset.inputs[chosen].float() / 16 - 0.5) / 0.5
                logits = network(inputs).logits
                loss = sum(F.cross_entropy(logits[j], engine.dataset.labels[chosen]) for j in range(3)) / 3
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    final = run.model(0).state_dict()
    for name, parameter in network.state_dict().items():
        assert torch.equal(parameter, final[name]), name


def test_messages_hold_only_what_the_method_may_send(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    expected = {
        "xfed": {"backbone": BACKBONE, "last_exit": LAST_EXIT},
        "fedper": {"backbone": BACKBONE},
        "fedavg": {"backbone": BACKBONE, "shallow_exits": SHALLOW_EXITS, "last_exit": LAST_EXIT},
        "local": {},
    }
    for method, parts in expected.items():
        run = train(method, method=method)
        engine = engines[-1]
        for message in (*engine.uploads, *engine.downloads):
            assert {name: tensor.numel() for name, tensor in message.tensors.items()} == parts
        assert all(set(upload.values) == {"samples"} for upload in engine.uploads)
        records = run.records()
        assert sum(record.bytes_up for record in records) == len(engine.uploads) * (4 * sum(parts.values()) + 8)
        numbers = [1 + ("students" in message.values) for message in engine.downloads]
        down = sum(4 * sum(parts.values()) + 8 * count for count in numbers)
        assert sum(record.bytes_down for record in records) == down


def test_xfed_students_join_depth_first(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    train("xfed", rounds=4)  # m = 3, T = 4: R = 1/2 in round 1, hence D = 1, K = 0; from round 2 on all
    students = [message.values["students"] for message in engines[0].downloads]
    assert students == [1] * 3 + [2] * 9


def test_exits_not_selected_are_frozen_and_cost_nothing(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    train("xfed")
    host, message = engines[0].host, engines[0].downloads[0]
    clients = {}
    for students in (0, 1):
        client = host.client(TrainTask(0, 1, message, None), {})
        host.algorithm.train(client, message.having(students=students))
        clients[students] = client
    initial = host.trainer.layout.gather(host.initial, Parts.SHALLOW_EXITS)
    assert torch.equal(clients[0].state["shallow_exits"], initial)
    first, second = clients[1].state["shallow_exits"].split(LAST_EXIT)
    assert not torch.equal(first, initial[:LAST_EXIT])
    assert torch.equal(second, initial[LAST_EXIT:])
    # One more exit of 4 × 10 weights: its forward pass, weight gradient and input gradient; and the teacher,
    # which now has a student, runs once over the data: stages 8² · 9 · 4, 4² · 9 · 16 and 2² · 9 · 16, and one exit.
    teacher = 64 * 36 + 16 * 144 + 4 * 144 + 40
    assert clients[1].meter.macs - clients[0].meter.macs == clients[0].samples * (3 * 40 + teacher)
