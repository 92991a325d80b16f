"""Proposition 1 examined, not assumed: where one mixed teacher equals many teachers, and where it does not.

The paper: a student that learns from all teachers, min_q Σ k_i KL(p_i ‖ q), and one that learns from the mixed
teacher (φ, Σ k_i h_i), min_q KL(p̄ ‖ q), are the same. Here p_i = softmax(z_i / τ), z̄ = Σ k_i z_i and
p̄ = softmax(z̄ / τ). The numbers that docs/explanation/distillation.md quotes are asserted below.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from xfed.models.network import Exit
from xfed.training.distillation import divergence

CLASSES, TEACHERS = 100, 10


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(own: float, teachers: int = TEACHERS) -> Tensor:
    """Own teacher first, the rest alike."""
    k = torch.full((teachers,), (1 - own) / (teachers - 1), dtype=torch.float64)
    k[0] = own
    return k


def uneven(teachers: int = TEACHERS) -> Tensor:
    return torch.softmax(draw(teachers, seed=99), dim=0)


def mix(k: Tensor, rows: Tensor) -> Tensor:
    """Σ k_i rows_i."""
    return torch.einsum("i,i...->...", k, rows)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) over the last dimension."""
    return (p * (p.log() - q.log())).sum(-1)


def targets(k: Tensor, z: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """What the student is drawn to: Σ k_i p_i by all teachers, p̄ by the mixed one."""
    return mix(k, torch.softmax(z / temperature, -1)), torch.softmax(mix(k, z) / temperature, -1)


def spread(std: float, samples: int = 500) -> Tensor:
    """Logits of teachers that know nothing of each other: teachers × samples × classes."""
    return std * draw(TEACHERS, samples, CLASSES, seed=1)


def total_variation(p: Tensor, q: Tensor) -> float:
    return float((p - q).abs().sum(-1).mean() / 2)


def gradient(loss: Tensor, student: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, student)
    return found


# What is exact


def test_a_mixture_of_exits_answers_with_the_mixture_of_logits_biases_included() -> None:
    maps, k = draw(8, 6, 3, 3, seed=2), uneven(5)
    heads = [Exit(6, 7).double() for _ in k]
    mixed = Exit(6, 7).double()
    with torch.no_grad():
        for seed, head in enumerate(heads):
            head.linear.weight.copy_(draw(7, 6, seed=10 + seed))
            head.linear.bias.copy_(draw(7, seed=20 + seed))
        mixed.linear.weight.copy_(mix(k, torch.stack([head.linear.weight for head in heads])))
        mixed.linear.bias.copy_(mix(k, torch.stack([head.linear.bias for head in heads])))
        each = torch.stack([head(maps)[1] for head in heads])
        torch.testing.assert_close(mixed(maps)[1], mix(k, each), atol=1e-12, rtol=0)
    assert each.std(0).min() > 0.01, "heads alike would prove nothing"


def test_teachers_of_probabilities_can_be_averaged() -> None:
    """Σ k_i KL(p_i ‖ q) = KL(Σ k_i p_i ‖ q) + Σ k_i KL(p_i ‖ Σ k_j p_j); the last term knows no q."""
    k, p = uneven(), torch.softmax(2 * draw(TEACHERS, CLASSES, seed=3), -1)
    q = torch.softmax(2 * draw(50, CLASSES, seed=4), -1)
    mean = mix(k, p)
    gap = mix(k, kl(p[:, None], q)) - kl(mean, q)
    torch.testing.assert_close(gap, mix(k, kl(p, mean)).expand(50), atol=1e-12, rtol=0)


@pytest.mark.parametrize("std", [0.5, 1.6, 4.9])
def test_with_reversed_divergence_the_mixed_teacher_is_exact(std: float) -> None:
    """Σ k_i KL(q ‖ p_i) = KL(q ‖ softmax(z̄)) + Σ k_i lse(z_i) − lse(z̄), lse = log Σ exp; the rest knows no q."""
    k, z = uneven(), std * draw(TEACHERS, CLASSES, seed=5)
    q = torch.softmax(2 * draw(50, CLASSES, seed=6), -1)
    gap = mix(k, kl(q, torch.softmax(z, -1)[:, None])) - kl(q, torch.softmax(mix(k, z), -1))
    constant = mix(k, torch.logsumexp(z, -1)) - torch.logsumexp(mix(k, z), -1)
    assert np.ptp(gap.numpy()) < 1e-13
    torch.testing.assert_close(gap, constant.expand(50), atol=1e-12, rtol=0)


# What the student feels: gradients of the very function that X-FED minimises


@pytest.mark.parametrize("temperature", [1.0, 2.0, 8.0])
def test_the_students_gradient_points_to_the_mean_probability_or_to_the_mixed_teacher(temperature: float) -> None:
    """∂/∂z_student of τ² Σ k_i KL(p_i ‖ q) is τ (q − Σ k_i p_i); of τ² KL(p̄ ‖ q) it is τ (q − p̄)."""
    k, z, samples = uneven(), spread(1.6, samples=20), 20
    student = draw(samples, CLASSES, seed=7).requires_grad_()
    q = torch.softmax(student.detach() / temperature, -1)
    mean, mixed = targets(k, z, temperature)
    many = sum(weight * divergence(teacher, student, temperature) for weight, teacher in zip(k, z, strict=True))
    one = divergence(mix(k, z), student, temperature)
    for loss, target in ((many, mean), (one, mixed)):
        expected = temperature * (q - target) / samples
        torch.testing.assert_close(gradient(loss, student), expected, atol=1e-12, rtol=0)
    assert (mean - mixed).abs().max() > 1e-4, "the two targets must differ here"


def test_the_two_objectives_differ_by_more_than_a_constant() -> None:
    """As Proposition 1 is stated, forward KL, the gap moves with q; so the optimal students differ."""
    k, z = weights(0.8), spread(1.6, samples=1)[:, 0]
    q = torch.softmax(1.6 * draw(50, CLASSES, seed=8), -1)
    mean, mixed = targets(k, z)
    gap = mix(k, kl(torch.softmax(z, -1)[:, None], q)) - kl(mixed, q)
    assert np.ptp(gap.numpy()) > 0.1
    assert mix(k, kl(torch.softmax(z, -1), mean)) < mix(k, kl(torch.softmax(z, -1), mixed)) - 1e-3


# How large the difference is

TOTAL_VARIATION = {  # (own weight, spread of logits): at τ = 1, 2, 4, 8
    (0.8, 1.6): (0.10, 0.03, 0.01, 0.00),
    (0.8, 4.9): (0.20, 0.15, 0.06, 0.02),
    (0.1, 1.6): (0.19, 0.05, 0.01, 0.00),
    (0.1, 4.9): (0.60, 0.35, 0.12, 0.03),
}


@pytest.mark.parametrize(("own", "std"), TOTAL_VARIATION)
def test_total_variation_between_the_two_targets(own: float, std: float) -> None:
    z = spread(std)
    found = [total_variation(*targets(weights(own), z, temperature)) for temperature in (1, 2, 4, 8)]
    assert found == pytest.approx(TOTAL_VARIATION[own, std], abs=0.01)


def test_concentrated_weights_keep_the_answer_spread_weights_lose_it() -> None:
    def agreement(own: float) -> float:
        mean, mixed = targets(weights(own), spread(4.9))
        return float((mean.argmax(-1) == mixed.argmax(-1)).double().mean())

    assert agreement(0.8) == pytest.approx(0.89, abs=0.03)
    assert agreement(0.1) == pytest.approx(0.13, abs=0.03)


def test_the_difference_falls_as_the_own_weight_grows() -> None:
    z = spread(1.6)
    found = [total_variation(*targets(weights(own), z, 2.0)) for own in (0.1, 0.5, 0.8, 0.95, 0.99)]
    assert found == sorted(found, reverse=True)
    assert found[2:] == pytest.approx([0.029, 0.008, 0.0017], rel=0.05)


@pytest.mark.parametrize("own", [0.1, 0.8])
def test_the_difference_shrinks_with_the_square_of_the_temperature(own: float) -> None:
    """Doubling τ quarters it. The limit of τ² (Σ k_i p_i − p̄) is (V − mean of V over classes) / (2 · classes).

    V is the weighted variance, class by class, of the teachers' logits after each teacher's mean is taken off:
    p = (1 + a/τ + (a² − mean a²)/(2τ²) + …) / classes, a the logits less their mean; the first two terms are
    linear in a and mix alike, the third does not.
    """
    k, z = weights(own), spread(1.6, samples=50)
    scaled = {}
    for temperature in (32.0, 64.0, 128.0, 256.0):
        mean, mixed = targets(k, z, temperature)
        scaled[temperature] = temperature**2 * (mean - mixed)
    sizes = [float(value.norm()) / temperature**2 for temperature, value in scaled.items()]
    ratios = [a / b for a, b in pairwise(sizes)]
    assert ratios == pytest.approx([4.0] * 3, rel=0.05)
    assert abs(ratios[-1] - 4) < abs(ratios[0] - 4)

    centred = z - z.mean(-1, keepdim=True)
    variance = mix(k, centred**2) - mix(k, centred) ** 2
    limit = (variance - variance.mean(-1, keepdim=True)) / (2 * CLASSES)
    assert float((scaled[256.0] - limit).norm() / limit.norm()) < 0.03


def test_with_the_loss_scaled_by_the_squared_temperature_the_gradients_still_meet() -> None:
    """τ² KL has gradients τ (q − p), which stay of one size as τ grows; their difference falls like 1/τ."""
    k, z = weights(0.8), spread(1.6)
    student = draw(500, CLASSES, seed=9).requires_grad_()
    relative = []
    for temperature in (1.0, 2.0, 64.0, 128.0):
        many = sum(weight * divergence(teacher, student, temperature) for weight, teacher in zip(k, z, strict=True))
        full = gradient(many, student)
        difference = full - gradient(divergence(mix(k, z), student, temperature), student)
        relative.append(float(difference.norm() / full.norm()))
    assert relative[:3] == pytest.approx([0.17, 0.11, 0.003], abs=0.01)
    assert relative[2] / relative[3] == pytest.approx(2.0, rel=0.05)


# Where it vanishes


def test_no_difference_with_one_teacher() -> None:
    mean, mixed = targets(weights(1.0), spread(4.9))
    torch.testing.assert_close(mean, mixed, atol=1e-14, rtol=0)


def test_no_difference_where_teachers_agree_up_to_a_shift() -> None:
    """Logits that differ by a constant per teacher and sample are the same probabilities."""
    z = 4.9 * draw(1, 50, CLASSES, seed=11) + 3 * draw(TEACHERS, 50, 1, seed=12)
    mean, mixed = targets(uneven(), z)
    torch.testing.assert_close(mean, mixed, atol=1e-14, rtol=0)


def test_the_mixed_teacher_is_the_normalised_geometric_mean() -> None:
    k, z = uneven(), spread(1.6, samples=20)
    product = torch.exp(mix(k, torch.log_softmax(z, -1)))
    torch.testing.assert_close(targets(k, z)[1], product / product.sum(-1, keepdim=True), atol=1e-14, rtol=0)
