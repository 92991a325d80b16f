"""X-FED's switches, each seen to do what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.bits import Memory, contents, differences
from tests.conftest import tiny
from xfed import Experiment, InputError, Run, run
from xfed.algorithms.xfed import XFed
from xfed.components import BaseSettings
from xfed.data.dealing.partition import open_partition
from xfed.federation.host import build_trainer
from xfed.federation.plan import Plan
from xfed.models.layout import Layout
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server


@pytest.fixture
def server() -> Server:
    experiment = tiny()
    trainer = build_trainer(experiment, experiment.load_data().card, "cpu")
    initial = trainer.snapshot()
    subnetworks = Subnetworks(trainer.network, trainer.layout)
    return Server(subnetworks, initial, initial.clone(), {}, Memory(), seed=1, population=6)


def upload(layout: Layout, last: torch.Tensor, samples: int = 1) -> Message:
    return Message({"backbone": torch.zeros(layout.count(Parts.BACKBONE)), "last_exit": last}, {"samples": samples})


def downloads(method: XFed, server: Server, cohort: Cohort) -> dict[int, Message]:
    """What participants receive: the model to train from, and what goes with it."""
    models, besides = method.model_for(server, cohort.clients, "training"), method.besides(server, cohort)
    return {client: models[client].with_message(besides[client]) for client in cohort.clients}


def finish_round(method: XFed, server: Server, changes: dict[int, torch.Tensor], round: int = 1) -> None:
    """Let each client upload the last exit it was sent, plus a change."""
    cohort = Cohort(round, 10, tuple(changes))
    sent = downloads(method, server, cohort)
    uploads = method.expect(server, sent)
    for client, change in changes.items():
        uploads.add(client, upload(server.layout, sent[client].tensors["last_exit"] + change))
    method.aggregate(server, uploads)
    server.round = round


def basis(server: Server, *entries: tuple[int, float]) -> torch.Tensor:
    vector = torch.zeros(server.layout.count(Parts.LAST_EXIT))
    for index, value in entries:
        vector[index] = value
    return vector


def test_mixture_of_a_two_client_round_by_hand(server: Server) -> None:
    method = XFed(XFed.Settings(mu=0.6))
    initial = server.layout.gather(server.initial, Parts.LAST_EXIT)
    one, two = basis(server, (0, 1.0)), basis(server, (0, 0.6), (1, 0.8))
    finish_round(method, server, {0: one, 1: two})
    # Updates have cosine 0.6. Row 0: project (1/2 + 1/1.2, 1/2 + 0.6/1.2) = (1.3333, 1.0); the excess 1.3333 is
    # taken off in equal parts: (0.6667, 0.3333). Row 1 is the mirror image.
    own, other = 2 / 3, 1 / 3
    delivered = method.model_for(server, [0, 1, 5], "evaluation")
    for client, expected in ((0, own * one + other * two), (1, other * one + own * two), (5, torch.zeros_like(one))):
        assert torch.allclose(delivered[client].tensors["last_exit"], initial + expected, atol=1e-6)


def test_similarity_is_of_updates_or_of_parameters(server: Server) -> None:
    """Opposite updates on equal exits: far apart as updates, alike as parameters."""
    change = basis(server, (0, 1e-3))
    method = XFed(XFed.Settings())
    finish_round(method, server, {0: change, 1: -change})
    sent_back = method.model_for(server, [0], "evaluation")[0].tensors["last_exit"]
    assert torch.equal(sent_back, server.kept.get(0)["trained"]), "cosine −1: own exit alone"
    other = XFed(XFed.Settings(similarity="parameters"))
    rows = other._mixture(server, [0], [0, 1])[0]
    middle = (server.kept.get(0)["trained"] + server.kept.get(1)["trained"]) / 2
    assert torch.allclose(rows, middle, atol=1e-6), "cosine near 1: an even mixture"


def test_conflicting_clients_are_left_out_of_selection(server: Server) -> None:
    method = XFed(XFed.Settings())
    alike = basis(server, (0, 1.0))
    finish_round(method, server, {0: alike, 1: alike, 2: -alike, 3: alike})
    # m = 3, T = 8, t = 3: R = 3/4, so (m − 1) R = 3/2: depth 1 for all, depth 2 for ⌊4 · 1/2⌋ = 2 of 4 clients.
    chosen = downloads(method, server, Cohort(3, 8, (0, 1, 2, 3)))
    students = {client: message.values["students"] for client, message in chosen.items()}
    assert students[2] == 1, "client 2 is in conflict with all others and goes first"
    assert sorted(students.values()) == [1, 1, 2, 2]


def test_teachers_all_mixes_clients_of_earlier_rounds(server: Server) -> None:
    changes = {client: basis(server, (client, 1.0)) for client in range(3)}
    results = {}
    for teachers in ("participants", "all"):
        server.kept = Memory()
        method = XFed(XFed.Settings(teachers=teachers))
        finish_round(method, server, {0: changes[0]}, round=1)
        finish_round(method, server, {1: changes[1], 2: changes[2]}, round=2)
        results[teachers] = method.model_for(server, [1], "evaluation")[1].tensors["last_exit"]
    initial = server.layout.gather(server.initial, Parts.LAST_EXIT)
    assert abs((results["participants"] - initial)[0]) < 1e-6, "client 0 was not there"
    assert (results["all"] - initial)[0] > 0.01, "client 0 teaches although it was there earlier"


def test_literal_profile_follows_the_paper_word_for_word(server: Server) -> None:
    literal = XFed(XFed.Settings.model_validate({"profile": "literal"}))
    s = literal.settings
    assert (s.similarity, s.teachers, s.mix, s.teacher) == ("parameters", "all", "start", "frozen")
    assert (s.temperature, s.kd_on_last, s.evaluated, s.kd_weight) == (1.0, True, "trained", "sum")
    assert XFed.Settings.model_validate({"profile": "literal", "temperature": 3}).temperature == 3.0
    changes = {client: basis(server, (client, 1.0)) for client in range(2)}
    finish_round(literal, server, changes)
    trained = server.kept.get(0)["trained"]
    assert "mixed" not in server.kept.get(0), "nothing is mixed when a round ends"
    assert torch.equal(literal.model_for(server, [0], "evaluation")[0].tensors["last_exit"], trained), (
        "evaluated as trained"
    )
    sent = downloads(literal, server, Cohort(2, 10, (0, 5)))
    assert not torch.equal(sent[0].tensors["last_exit"], trained), "mixed when the next round starts"
    both = torch.stack([trained, server.kept.get(1)["trained"]]).mean(0)
    assert torch.allclose(sent[5].tensors["last_exit"], both, atol=0.05), "an unseen client learns from all seen"


def test_evaluated_switch_with_mixing_at_the_end(server: Server) -> None:
    method = XFed(XFed.Settings(evaluated="trained"))
    finish_round(method, server, {0: basis(server, (0, 1.0)), 1: basis(server, (1, 1.0))})
    assert torch.equal(
        method.model_for(server, [0], "evaluation")[0].tensors["last_exit"], server.kept.get(0)["trained"]
    )
    sent = downloads(method, server, Cohort(2, 10, (0, 1)))
    assert torch.equal(sent[0].tensors["last_exit"], server.kept.get(0)["mixed"]), "training starts from the mixture"


def test_mixing_does_not_depend_on_the_order_of_clients(server: Server) -> None:
    generator = torch.Generator().manual_seed(5)
    count = server.layout.count(Parts.LAST_EXIT)
    changes = {client: torch.randn(count, generator=generator) for client in range(4)}
    method, mixed = XFed(XFed.Settings()), []
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        server.kept = Memory()
        finish_round(method, server, {client: changes[client] for client in order})
        mixed.append(torch.stack([server.kept.get(client)["mixed"] for client in range(4)]))
    np.testing.assert_allclose(mixed[0].numpy(), mixed[1].numpy(), atol=1e-6)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tiny(out=tmp_path_factory.mktemp("plain") / "run", rounds=6), progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "quadratic"}, {"mu": 0.3}, {"lam": 0.5}, {"temperature": 1.0}, {"teacher": "live"},
        {"teachers": "all"}, {"mix": "start"}, {"similarity": "parameters"}, {"kd_weight": "mean"},
        {"kd_on_last": True}, {"evaluated": "trained"}, {"profile": "literal"},
    ],
    ids=str,
)  # fmt: skip
def test_every_switch_changes_the_run(plain: Run, train: Callable[..., Run], change: dict[str, Any]) -> None:
    changed = differences(plain, train(rounds=6, xfed=change))
    assert any(name.startswith("models/") for name in changed)


@pytest.mark.parametrize("statistics", ["local", "aggregate"])
def test_batchnorm_statistics_stay_or_travel(train: Callable[..., Run], statistics: str) -> None:
    result = train(convnet={"width": 4, "norm": "batch"}, bn_statistics=statistics)
    found = contents(result)
    server_statistics = found["server/model.statistics"]
    means, variances = server_statistics[:4], server_statistics[4:8]
    moved = not (torch.equal(means, torch.zeros(4)) and torch.equal(variances, torch.ones(4)))
    assert moved == (statistics == "aggregate")
    held = [name for name in found if name.startswith("client/") and name.endswith("/statistics")]
    assert bool(held) == (statistics == "local")
    per_client = 4 * (40 + 2 * 148 + 3 * 8 + 50 + (24 if statistics == "aggregate" else 0)) + 8
    assert result.records()[0].bytes_up == 3 * per_client


def test_frozen_teacher_costs_a_pass_per_round_or_per_epoch(train: Callable[..., Run]) -> None:
    """With local statistics the teacher runs at every step; otherwise once over the data."""
    forward = 64 * 36 + 16 * 144 + 4 * 144 + 40
    costs = {}
    for statistics in ("local", "aggregate"):
        result = train(statistics, convnet={"width": 4, "norm": "batch"}, bn_statistics=statistics, epochs=3, rounds=1)
        costs[statistics] = result.records()[0].macs
    samples = sum(cohort_sizes(result))
    assert costs["local"] - costs["aggregate"] == samples * forward * (3 - 1)


def cohort_sizes(result: Run) -> list[int]:
    sizes = [len(split.train) for split in open_partition(result.directory.partition)]
    e = result.experiment
    return [
        sizes[client] for client in Plan(e.training.rounds, e.cohort_size, 1, 1, sizes, sizes, e.seed).cohort(1).clients
    ]


def test_without_distillation_no_teacher_is_computed(train: Callable[..., Run]) -> None:
    """With λ = 0 and all exits selected, a client trains as FedPer's does, and pays for nothing else."""
    ours = train("ours", xfed={"lam": 0, "schedule": "fixed"}).records()
    theirs = train("theirs", method="fedper").records()
    assert [each.macs for each in ours] == [each.macs for each in theirs]


def test_settings_are_described() -> None:
    assert issubclass(XFed.Settings, BaseSettings)
    assert all(field.description for field in XFed.Settings.model_fields.values())


def test_a_profile_over_settings_written_out_is_refused() -> None:
    """A run's settings name everything, so that another profile on top of them would do nothing."""
    written = yaml.safe_load(tiny().to_yaml())
    with pytest.raises(InputError, match=r"profile is 'literal', but all that it stands for .* leave these out"):
        Experiment.from_mapping({**written, "xfed.profile": "literal"})
    literal = tiny(xfed={"profile": "literal", "mu": 0.7})
    assert Experiment.from_mapping(yaml.safe_load(literal.to_yaml())) == literal
