"""Teacher weights against a solver, their optimality conditions, worked examples, and X-FED's mixing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from torch import Tensor, nn

from tests.bits import Memory
from xfed.algorithms.common.matching import Matrix, cosines, match_teachers, project_on_simplex
from xfed.algorithms.xfed import XFed
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork, Exit
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.message import Message
from xfed.protocol.server import Server

seeds = st.integers(0, 2**32 - 1)
mus = st.floats(0.05, 10.0)


def similarity_of(seed: int, clients: int, dimension: int = 6) -> Matrix:
    vectors = np.random.default_rng(seed).normal(size=(clients, dimension))
    return cosines(vectors, vectors, range(clients), range(clients))


# Against a solver


@cache
def program(size: int) -> tuple[cp.Problem, cp.Variable, cp.Parameter, cp.Parameter]:
    """The paper's quadratic program as it stands: max kᵀc − μ‖k − 1/n‖² with Σ k = 1, k ≥ 0."""
    k, c, mu = cp.Variable(size), cp.Parameter(size), cp.Parameter(nonneg=True)
    objective = cp.Maximize(k @ c - mu * cp.sum_squares(k - 1 / size))
    return cp.Problem(objective, [cp.sum(k) == 1, k >= 0]), k, c, mu


@given(seeds, st.sampled_from([1, 2, 3, 5, 10, 25]), mus)
@settings(max_examples=60, deadline=None)
def test_weights_solve_the_papers_quadratic_program(seed: int, clients: int, mu: float) -> None:
    problem, k, c, strength = program(clients)
    similarity = similarity_of(seed, clients)
    weights = match_teachers(similarity, mu)
    c.value, strength.value = similarity[seed % clients], mu
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    assert k.value == pytest.approx(weights[seed % clients], abs=1e-6)


@pytest.mark.parametrize("mu", [0.1, 0.6, 3.0])
def test_a_second_solver_agrees(mu: float) -> None:
    similarity = similarity_of(3, 8)
    for row, weights in zip(similarity, match_teachers(similarity, mu), strict=True):
        found = minimize(
            lambda k, c=row: mu * np.sum((k - 1 / 8) ** 2) - k @ c,
            np.full(8, 1 / 8),
            method="SLSQP",
            bounds=[(0, 1)] * 8,
            constraints={"type": "eq", "fun": lambda k: k.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        assert found.x == pytest.approx(weights, abs=1e-6)


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 12)), elements=st.floats(-1e3, 1e3)))
@settings(max_examples=300, deadline=None)
def test_projection_lies_on_the_simplex_and_meets_the_optimality_conditions(rows: Matrix) -> None:
    """k = Π(v) exactly when one θ per row has k_j = v_j − θ where k_j > 0, and v_j ≤ θ where k_j = 0."""
    projected = project_on_simplex(rows)
    assert projected.shape == rows.shape
    assert (projected >= 0).all()
    assert projected.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    for v, k in zip(rows, projected, strict=True):
        thetas = (v - k)[k > 0]
        assert np.ptp(thetas) <= 1e-9
        assert (v[k == 0] <= thetas.max() + 1e-9).all()


@given(seeds, st.integers(1, 30), mus)
@settings(max_examples=100, deadline=None)
def test_weights_meet_the_optimality_conditions_of_the_program(seed: int, clients: int, mu: float) -> None:
    """One multiplier ν per row: c_j − 2μ(k_j − 1/n) = ν where k_j > 0, ≤ ν where k_j = 0; Σ k = 1, k ≥ 0."""
    similarity = similarity_of(seed, clients)
    weights = match_teachers(similarity, mu)
    assert (weights >= 0).all()
    assert weights.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    for c, k in zip(similarity, weights, strict=True):
        slope = c - 2 * mu * (k - 1 / clients)
        assert np.ptp(slope[k > 0]) <= 1e-9
        assert (slope[k == 0] <= slope[k > 0].max() + 1e-9).all()


def test_projection_by_hand() -> None:
    """(.9, .5, −1): θ = (.9 + .5 − 1)/2 = .2, so (.7, .3, 0); on the simplex already: stays; equals: thirds."""
    rows = np.array([[0.9, 0.5, -1.0], [0.2, 0.3, 0.5], [7.0, 7.0, 7.0]])
    expected = np.array([[0.7, 0.3, 0.0], [0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    assert project_on_simplex(rows) == pytest.approx(expected, abs=1e-15)


def test_projection_keeps_its_precision_far_from_the_origin() -> None:
    rows = np.array([[1e12, 1e12 - 0.5, 1e12 - 4.0], [-1e12, -1e12 - 0.5, -1e12 - 4.0]])
    assert np.array_equal(project_on_simplex(rows), [[0.75, 0.25, 0.0]] * 2)


# Worked examples of own weights

COSINES = [0.0, 0.05, 0.1, 0.3, 0.5, 0.9]
OWN_WEIGHTS = {
    (10, 0.3): ["1", "1", "1", "1", ".85", ".25"],
    (10, 0.6): [".85", ".81", ".78", ".63", ".48", ".18"],
    (10, 0.7): [".74", ".71", ".68", ".55", ".42", ".16"],
    (10, 0.8): [".66", ".63", ".61", ".49", ".38", ".16"],
    (100, 0.6): [".84", ".79", ".75", ".59", ".42", ".09"],
    (100, 0.8): [".63", ".60", ".57", ".44", ".32", ".07"],
}


@pytest.mark.parametrize(("clients", "mu"), OWN_WEIGHTS)
def test_worked_table_of_own_weights(clients: int, mu: float) -> None:
    for cosine, printed in zip(COSINES, OWN_WEIGHTS[clients, mu], strict=True):
        similarity = np.full((clients, clients), cosine)
        np.fill_diagonal(similarity, 1.0)
        weights = match_teachers(similarity, mu)
        own = weights.diagonal()
        # Two digits with halves rounded up, as printed: .775 → .78. The hair is for floats just below a half.
        assert np.array_equal(np.floor(100 * own + 0.5 + 1e-9), np.full(clients, round(100 * float(printed))))
        others = weights[~np.eye(clients, dtype=bool)]
        assert others == pytest.approx((1 - own[0]) / (clients - 1), abs=1e-12)


# Limits


@pytest.mark.parametrize("mu", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("clients", [1, 2, 10, 200])
def test_tiny_mu_is_exactly_the_own_exit_alone(clients: int, mu: float) -> None:
    similarity = similarity_of(1, clients, dimension=1290)
    assert np.array_equal(match_teachers(similarity, mu), np.eye(clients))


def test_with_all_updates_missing_tiny_mu_still_means_the_own_exit_alone() -> None:
    zero = np.zeros((5, 3))
    assert np.array_equal(match_teachers(cosines(zero, zero, range(5), range(5)), 1e-6), np.eye(5))


@pytest.mark.parametrize("clients", [1, 3, 50])
def test_large_mu_is_uniform(clients: int) -> None:
    assert match_teachers(similarity_of(2, clients), 1e9) == pytest.approx(1 / clients, abs=1e-8)


def test_weights_follow_similarity() -> None:
    similarity = similarity_of(4, 12)
    for c, k in zip(similarity, match_teachers(similarity, 0.6), strict=True):
        order = np.argsort(c)
        assert (np.diff(k[order]) >= 0).all()
        assert k[order[-1]] > k[order[0]]


@given(seeds, st.integers(2, 15), st.floats(0.1, 5.0))
@settings(max_examples=60, deadline=None)
def test_the_order_of_clients_does_not_matter(seed: int, clients: int, mu: float) -> None:
    similarity = similarity_of(seed, clients)
    order = np.random.default_rng(seed).permutation(clients)
    weights = match_teachers(similarity, mu)
    assert np.array_equal(match_teachers(similarity[order][:, order], mu), weights[order][:, order])


# Cosines


def test_cosines_by_hand() -> None:
    """(3, 4) · (4, 3) / 25 = .96; (3, 4) · (−4, 3) = 0; (4, 3) · (−4, 3) / 25 = −.28; length does not matter."""
    vectors = np.array([[3.0, 4.0], [400.0, 300.0], [-0.04, 0.03]])
    expected = np.array([[1, 0.96, 0], [0.96, 1, -0.28], [0, -0.28, 1]])
    assert cosines(vectors, vectors, [0, 1, 2], [0, 1, 2]) == pytest.approx(expected, abs=1e-15)


def test_zero_vectors_have_cosine_zero_with_others_and_one_with_themselves() -> None:
    vectors = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    with np.errstate(all="raise"):
        found = cosines(vectors, vectors, [0, 1, 2], [0, 1, 2])
    assert np.array_equal(found, np.eye(3))


def test_own_pairs_go_by_identity_not_by_place() -> None:
    rows, columns = np.zeros((2, 3)), np.array([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 0]])
    found = cosines(rows, columns, [5, 3], [3, 7, 5])
    assert np.array_equal(found, [[0, 0, 1], [1, 0, 0]])


@given(seeds, st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_cosines_against_sums_written_out(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(rows, 7)), rng.normal(size=(columns, 7))
    found = cosines(a, b, range(rows), range(100, 100 + columns))
    assert (abs(found) <= 1).all()
    for i, j in np.ndindex(rows, columns):
        dot = math.fsum(x * y for x, y in zip(a[i], b[j], strict=True))
        assert found[i, j] == pytest.approx(dot / (math.hypot(*a[i]) * math.hypot(*b[j])), abs=1e-12)


def test_cosines_never_leave_their_range() -> None:
    vectors = np.random.default_rng(0).normal(size=(1, 1290)) * np.ones((50, 1))
    assert cosines(vectors, vectors, range(50), range(50, 100)).max() <= 1.0


# X-FED's mixing at the end of a round


def round_of(exits: Mapping[int, Tensor], order: Sequence[int], mu: float) -> tuple[Server, Tensor]:
    """Let X-FED take in one round of uploads, in some order; give its server and the initial last exit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = EarlyExitNetwork([nn.Identity()], [Exit(4, 3)], [0])
    layout = Layout.of(network)
    initial = layout.bind(network, torch.device("cpu")).clone()
    server = Server(Subnetworks(network, layout), initial, initial.clone(), {}, Memory(), seed=1, population=10)
    algorithm = XFed(XFed.Settings(mu=mu))
    uploads = algorithm.expect(server, algorithm.model_for(server, order, "training"))
    for client in order:
        uploads.add(client, Message({Parts.LAST_EXIT.key: exits[client]}, {"samples": 3}))
    algorithm.aggregate(server, uploads)
    return server, layout.gather(initial, Parts.LAST_EXIT)


def test_xfed_mixes_from_a_snapshot_in_any_order() -> None:
    exits = {client: torch.randn(15, generator=torch.Generator().manual_seed(client)) for client in (2, 3, 5, 8)}
    server, initial = round_of(exits, [2, 3, 5, 8], mu=0.6)
    reversed_server, _ = round_of(exits, [8, 5, 3, 2], mu=0.6)
    updates = torch.stack([exits[c] - initial for c in exits]).double()
    similarity = torch.cosine_similarity(updates[:, None], updates[None], dim=2).numpy()
    weights = match_teachers(similarity, 0.6)
    assert ((weights > 0).sum(axis=1) > 1).all(), "a case without mixing proves nothing"
    by_hand = torch.from_numpy(weights) @ torch.stack(list(exits.values())).double()
    for client, expected in zip(exits, by_hand, strict=True):
        kept, other = server.kept.get(client), reversed_server.kept.get(client)
        assert torch.equal(kept["trained"], exits[client])
        torch.testing.assert_close(kept["mixed"].double(), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(kept["mixed"], other["mixed"], atol=1e-6, rtol=0)


def test_xfed_without_matching_gives_every_client_its_own_exit_back_bit_for_bit() -> None:
    exits = {client: torch.randn(15, generator=torch.Generator().manual_seed(client)) for client in (2, 3, 5, 8)}
    server, _ = round_of(exits, [2, 3, 5, 8], mu=1e-6)
    for client, trained in exits.items():
        assert torch.equal(server.kept.get(client)["mixed"], trained)
