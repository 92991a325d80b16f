"""FedPAC's program against an independent solver."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xfed.algorithms.common.simplex_qp import smallest_norm_weights
from xfed.algorithms.fedpac import combination_gram, combine


@given(st.integers(1, 12), st.integers(1, 20), st.integers(0, 10_000), st.sampled_from([1e-4, 1.0, 1e4]))
@settings(max_examples=60, deadline=None)
def test_as_good_as_an_interior_point_solver(clients: int, dimensions: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    rows = scale * rng.normal(size=(clients, dimensions)) * (rng.random((clients, 1)) > 0.2)
    gram = np.diag(scale**2 * rng.random(clients) * (rng.random() > 0.3)) + rows @ rows.T
    weights = smallest_norm_weights(gram)
    assert weights is not None
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    unknown = cvxpy.Variable(clients)
    normalised = gram / scale**2
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.quad_form(unknown, cvxpy.psd_wrap(normalised))), [unknown >= 0, cvxpy.sum(unknown) == 1]
    )
    problem.solve(solver=cvxpy.CLARABEL)
    assert weights @ normalised @ weights <= problem.value + 1e-7
    slopes = normalised @ weights
    assert slopes.min() >= weights @ slopes - 1e-7, "no direction leads further down"


def test_one_hot_when_own_variance_vanishes_and_others_are_far() -> None:
    means = np.array([[0.0], [100.0], [-50.0]])
    weights, failures = combine(means, np.array([1e-9, 1e-9, 1e-9]))
    assert failures == 0
    assert weights.tolist() == np.eye(3).tolist()


def test_alike_clients_share_evenly() -> None:
    weights, _ = combine(np.zeros((4, 3)), np.ones(4))
    np.testing.assert_allclose(weights, np.full((4, 4), 0.25), atol=1e-12)


def test_gram_is_positive_semi_definite() -> None:
    rng = np.random.default_rng(3)
    gram = combination_gram(rng.normal(size=(8, 30)), rng.normal(size=8), 2)
    assert np.linalg.eigvalsh(gram).min() > -1e-9


def test_numbers_that_are_not_finite_give_nothing() -> None:
    assert smallest_norm_weights(np.array([[1.0, np.nan], [np.nan, 1.0]])) is None
