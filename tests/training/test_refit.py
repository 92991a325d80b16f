"""Refitting a linear exit: the one minimum, found by another optimizer too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax

from xfed.training.refit import LinearExit, refit


def drawn(seed: int, samples: int, width: int, classes: int) -> tuple[LinearExit, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    start = LinearExit(torch.randn(classes, width, generator=generator), torch.randn(classes, generator=generator))
    labels = torch.randint(classes, (samples,), generator=generator)
    return start, torch.randn(samples, width, generator=generator), labels


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 40), st.sampled_from([0.003, 0.03, 1.0]))
def test_the_minimum_is_the_one_that_scipy_finds(seed: int, samples: int, rho: float) -> None:
    start, features, labels = drawn(seed, samples, 3, 4)
    held = np.concatenate([start.weight.numpy(), start.bias.numpy()[:, None]], axis=1).astype(np.float64)

    def loss(flat: np.ndarray) -> float:
        found = flat.reshape(held.shape)
        logits = features.numpy() @ found[:, :-1].T + found[:, -1]
        answers = log_softmax(logits, axis=1)[np.arange(samples), labels.numpy()]
        return float(-answers.mean() + rho / 2 * ((found - held) ** 2).sum())

    expected = minimize(loss, held.ravel(), method="BFGS", options={"gtol": 1e-7})
    found, _ = refit(start, features, labels, rho)
    ours = np.concatenate([found.weight.numpy(), found.bias.numpy()[:, None]], axis=1)
    assert loss(ours.ravel()) <= expected.fun + 1e-6
    assert np.abs(ours.ravel() - expected.x).max() < 2e-2 * max(1.0, np.abs(expected.x).max())


def test_a_strong_hold_leaves_the_exit_alone() -> None:
    start, features, labels = drawn(1, 20, 5, 3)
    found, _ = refit(start, features, labels, 1e8)
    torch.testing.assert_close(found.weight, start.weight, atol=1e-6, rtol=0)


def test_a_weak_hold_separates_what_can_be_separated() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    start = LinearExit(torch.zeros(2, 2), torch.zeros(2))
    found, macs = refit(start, features, torch.tensor([1, 0]), 1e-4)
    assert (features @ found.weight.T + found.bias).argmax(1).tolist() == [1, 0]
    assert macs % (2 * 2 * 3 * 2) == 0, "whole passes: two products of 2 samples, 3 numbers and 2 classes each"
    assert macs >= 2 * (2 * 2 * 3 * 2)


@pytest.mark.parametrize("samples", [1, 2])
def test_few_samples(samples: int) -> None:
    start, features, labels = drawn(3, samples, 4, 3)
    found, _ = refit(start, features, labels, 0.03)
    assert found.weight.isfinite().all()
    assert found.bias.isfinite().all()
