"""Distillation: the divergence by hand and against scipy, its three teachers, and who gets a gradient."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy
from torch import Tensor, nn

from xfed.data.dataset import Dataset
from xfed.data.views import View
from xfed.models.convnet import ConvNet
from xfed.models.costs import count_costs
from xfed.models.layout import Layout, ModelState
from xfed.models.network import seeded
from xfed.training.distillation import CachedTeacher, Distillation, LiveTeacher, SteppingTeacher, Teacher, divergence
from xfed.training.objectives import Batch
from xfed.training.trainer import Meter, Phase, Stream, Trainer

LAST = 2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trainer_with(norm: Literal["none", "batch"]) -> Trainer:
    network = seeded(ConvNet(ConvNet.Settings(width=4, norm=norm)), (1, 8, 8), 10, "all", seed=3)
    return Trainer(network, Layout.of(network), count_costs(network, torch.zeros(1, 1, 8, 8)), torch.device("cpu"), 8)


def view(samples: int = 20) -> View:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randint(0, 256, (samples, 1, 8, 8), generator=generator, dtype=torch.uint8)
    dataset = Dataset("noise", inputs, torch.arange(samples) % 10, tuple("0123456789"))
    return View(dataset, torch.arange(samples).flip(0))


def batch_of(trainer: Trainer, positions: Tensor, data: View | None = None) -> Batch:
    """Run the trainer's network on some samples, as training would."""
    [(_, inputs, labels)] = (data or view()).batches(positions, len(positions))
    features, logits = trainer.network(inputs, range(LAST + 1))
    return Batch(inputs, labels, positions, features, logits, trainer.network)


def logits_only(logits: dict[int, Tensor], positions: Tensor | None = None) -> Batch:
    """A batch for terms that look at nothing but logits and positions."""
    rows = len(next(iter(logits.values())))
    where = torch.arange(rows) if positions is None else positions
    return Batch(torch.zeros(rows), torch.zeros(rows, dtype=torch.long), where, {}, logits, nn.Module())


# The divergence


def test_divergence_of_two_classes_by_hand() -> None:
    """Logits (ln 3, 0) are (¾, ¼), logits (0, 0) are (½, ½): KL = ¾ ln(¾ / ½) + ¼ ln(¼ / ½)."""
    teacher, student = torch.tensor([[math.log(3), 0.0]]).double(), torch.zeros(1, 2).double()
    assert divergence(teacher, student, 1.0).item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    # The other way round it is ½ ln(½ / ¾) + ½ ln(½ / ¼): direction matters.
    assert divergence(student, teacher, 1.0).item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2))


def test_temperature_divides_logits_and_squares_into_the_loss_by_hand() -> None:
    """At τ = 2 logits (2 ln 3, 0) are (¾, ¼) again, and the loss counts four times."""
    teacher, student = torch.tensor([[2 * math.log(3), 0.0]]).double(), torch.zeros(1, 2).double()
    assert divergence(teacher, student, 2.0).item() == pytest.approx(4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 12), st.floats(0.5, 8.0))
@settings(max_examples=60, deadline=None)
def test_divergence_against_scipy(seed: int, rows: int, classes: int, temperature: float) -> None:
    teacher, student = 3 * draw(rows, classes, seed=seed), 3 * draw(rows, classes, seed=seed + 1)
    p, q = (softmax(logits.numpy() / temperature, axis=1) for logits in (teacher, student))
    expected = temperature**2 * np.mean(entropy(p, q, axis=1))
    assert divergence(teacher, student, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_divergence_is_a_mean_over_the_batch() -> None:
    teacher, student = draw(3, 5, seed=1), draw(3, 5, seed=2)
    each = [divergence(teacher[i : i + 1], student[i : i + 1], 2.0).item() for i in range(3)]
    assert divergence(teacher, student, 2.0).item() == pytest.approx(sum(each) / 3)
    assert len({round(value, 6) for value in each}) == 3


def test_gradients_keep_their_size_as_temperature_grows() -> None:
    """τ (q − p) tends to (student − teacher, each less its mean) / classes; without τ² it would vanish."""
    teacher, student = draw(1, 5, seed=1), draw(1, 5, seed=2).requires_grad_()
    (found,) = torch.autograd.grad(divergence(teacher, student, 1e4), student)
    difference = student.detach() - teacher
    torch.testing.assert_close(found, (difference - difference.mean()) / 5, atol=1e-4, rtol=0)


# The term


def test_students_are_summed_and_scaled_by_strength() -> None:
    teacher = draw(4, 5, seed=9)
    logits = {j: draw(4, 5, seed=j) for j in range(4)}
    seen: list[Batch] = []

    def answer(batch: Batch) -> Tensor:
        seen.append(batch)
        return teacher

    batch = logits_only(logits)
    found = Distillation(answer, [0, 2], 0.3, 2.0)(batch)
    expected = 0.3 * (divergence(teacher, logits[0], 2.0) + divergence(teacher, logits[2], 2.0))
    assert found.shape == ()
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    assert seen == [batch], "the teacher is asked once, not once per student"


def test_without_strength_the_term_is_zero_and_so_is_its_gradient() -> None:
    student = draw(4, 5, seed=1).requires_grad_()
    term = Distillation(lambda batch: draw(4, 5, seed=2), [0], 0.0, 2.0)(logits_only({0: student}))
    (found,) = torch.autograd.grad(term, student)
    assert term.item() == 0.0
    assert torch.equal(found, torch.zeros(4, 5).double())


# Teachers


def test_live_teacher_reads_the_last_exit_and_gets_no_gradient() -> None:
    logits = {j: draw(4, 5, seed=j).requires_grad_() for j in range(3)}
    term = Distillation(LiveTeacher(LAST), [0, 1, LAST], 1.0, 2.0)(logits_only(logits))
    assert term.item() == pytest.approx(sum(divergence(logits[2], logits[j], 2.0).item() for j in (0, 1)))
    first, second, last = torch.autograd.grad(term, [logits[0], logits[1], logits[2]])
    assert first.abs().max() > 1e-3
    assert second.abs().max() > 1e-3
    # Distilling the last exit into itself is the one way in which a gradient could reach it: it is zero there.
    assert last.abs().max() < 1e-15


def test_cached_teacher_looks_positions_up() -> None:
    logits = torch.arange(12.0).view(6, 2)
    positions = torch.tensor([4, 0, 4, 5])
    found = CachedTeacher(logits)(logits_only({0: torch.zeros(4, 2)}, positions))
    assert found.tolist() == [[8, 9], [0, 1], [8, 9], [10, 11]]


def test_cached_logits_are_those_of_the_frozen_model_however_batches_are_shuffled() -> None:
    trainer, data = trainer_with("none"), view()
    model = trainer.snapshot()
    teacher = CachedTeacher(trainer.outputs(model, data, [LAST]).logits[LAST])
    assert not teacher.logits.requires_grad
    for positions, _, _ in data.shuffled(8, torch.Generator().manual_seed(5)):
        batch = batch_of(trainer, positions, data)
        torch.testing.assert_close(teacher(batch), batch.logits[LAST].detach(), atol=1e-6, rtol=0)
    rows = teacher.logits.unique(dim=0)
    assert len(rows) == len(data), "samples with equal logits could not show a mix-up"


def _stale(trainer: Trainer) -> ModelState:
    """A model with weights of its own and running statistics that fit nothing."""
    model = trainer.snapshot()
    generator = torch.Generator().manual_seed(6)
    model.parameters.add_(torch.randn(model.parameters.shape, generator=generator), alpha=0.3)
    model.statistics.copy_(5 + torch.rand(model.statistics.shape, generator=generator))
    return model


def _by_hand(trainer: Trainer, model: ModelState, inputs: Tensor) -> Tensor:
    """Convolution, (x − batch mean) / √(batch variance + ε) · γ + β, ReLU, max-pool, three times; mean; linear."""

    def values(module: str) -> list[Tensor]:
        entries = [entry for entry in trainer.layout.entries if entry.name.startswith(f"{module}.")]
        return [model.parameters[entry.start : entry.stop].view(entry.shape) for entry in entries]

    state = inputs
    for stage in range(LAST + 1):
        weight, bias, gamma, beta = values(f"stages.{stage}")
        state = F.conv2d(state, weight, bias, padding=1)
        mean = state.mean((0, 2, 3), keepdim=True)
        variance = ((state - mean) ** 2).mean((0, 2, 3), keepdim=True)
        state = (state - mean) / (variance + 1e-5).sqrt()
        state = F.max_pool2d((state * gamma.view(1, -1, 1, 1) + beta.view(1, -1, 1, 1)).relu(), 2)
    weight, bias = values(f"exits.{LAST}")
    return state.mean((2, 3)) @ weight.T + bias


def _stepping(trainer: Trainer, model: ModelState, meter: Meter | None = None) -> SteppingTeacher:
    return SteppingTeacher(trainer.frozen_copy(model), LAST, trainer.costs.forward([LAST]), meter or Meter())


def test_stepping_teacher_normalises_by_the_batch_at_hand() -> None:
    trainer = trainer_with("batch")
    model = _stale(trainer)
    teacher = _stepping(trainer, model)
    batch = batch_of(trainer, torch.arange(8))
    found = teacher(batch)
    torch.testing.assert_close(found, _by_hand(trainer, model, batch.inputs), atol=1e-4, rtol=1e-4)
    on_stale_statistics = trainer.outputs(model, view(), [LAST]).logits[LAST][:8]
    assert (found - on_stale_statistics).abs().max() > 0.1, "stale statistics must matter here"


def test_stepping_teacher_changes_no_statistics_and_no_weights_anywhere() -> None:
    trainer = trainer_with("batch")
    model = _stale(trainer)
    before, resident = model.clone(), trainer.snapshot()
    teacher = _stepping(trainer, model)
    inside = {name: value.clone() for name, value in teacher.network.state_dict().items()}
    batch = batch_of(trainer_with("batch"), torch.arange(8))
    first = teacher(batch)
    assert torch.equal(teacher(batch), first)
    for name, value in teacher.network.state_dict().items():
        if not name.endswith("num_batches_tracked"):  # a counter that BatchNorm with a fixed momentum never reads
            assert torch.equal(value, inside[name]), name
    assert torch.equal(model.statistics, before.statistics)
    assert torch.equal(model.parameters, before.parameters)
    assert torch.equal(trainer.snapshot().statistics, resident.statistics)
    assert torch.equal(trainer.snapshot().parameters, resident.parameters)
    means = [value for name, value in inside.items() if name.endswith("running_mean")]
    assert len(means) == 3
    assert all((value >= 5).all() for value in means), "the copy must hold the model's statistics"


def test_stepping_teacher_stays_put_while_the_student_trains() -> None:
    trainer, data, meter = trainer_with("batch"), view(), Meter()
    model = _stale(trainer)
    teacher = _stepping(trainer, model, meter)
    batch = batch_of(trainer_with("batch"), torch.arange(8))
    before = teacher(batch)
    objective = Distillation(teacher, [0, 1], 1.0, 2.0)
    spent = meter.macs
    trained = trainer.train(model, data, [Phase(objective, epochs=1, rate=0.1)], Stream(1, 0, 1), Meter())
    assert not torch.equal(trained.parameters, model.parameters)
    assert not torch.equal(trained.statistics, model.statistics), "the student's own statistics do move"
    assert meter.macs - spent == len(data) * trainer.costs.forward([LAST])
    assert torch.equal(teacher(batch), before)


def test_stepping_teacher_records_no_graph_even_of_a_network_that_could_train() -> None:
    trainer = trainer_with("batch")
    teacher = _stepping(trainer, trainer.snapshot())
    teacher.network.requires_grad_(True)
    assert not teacher(batch_of(trainer, torch.arange(8))).requires_grad


@pytest.mark.parametrize("kind", ["live", "cached", "stepping"])
def test_distillation_moves_the_students_and_never_the_last_exit(kind: str) -> None:
    trainer, data = trainer_with("batch" if kind == "stepping" else "none"), view()
    model = trainer.snapshot()
    teachers: dict[str, Teacher] = {
        "live": LiveTeacher(LAST),
        "cached": CachedTeacher(trainer.outputs(model, data, [LAST]).logits[LAST]),
        "stepping": _stepping(trainer, model),
    }
    teacher = teachers[kind]
    batch = batch_of(trainer, torch.arange(8), data)
    assert not teacher(batch).requires_grad
    term = Distillation(teacher, [0, 1], 1.0, 2.0)(batch)
    named = dict(trainer.network.named_parameters())
    gradients = torch.autograd.grad(term, list(named.values()), allow_unused=True)
    reached = {name.rsplit(".", 2)[0] for name, g in zip(named, gradients, strict=True) if g is not None}
    assert {name.split(".")[0] + name.split(".")[1] for name in reached} == {"stages0", "stages1", "exits0", "exits1"}
    if isinstance(teacher, SteppingTeacher):
        assert not any(parameter.requires_grad for parameter in teacher.network.parameters())
