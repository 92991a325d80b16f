"""Student selection against a greedy written anew, the counts of the schedules, and examples worked by hand."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xfed.algorithms.common.selection import (
    SCHEDULES,
    ScheduleName,
    keep_most_compatible,
    select_students,
    student_counts,
)

NAMES: list[ScheduleName] = ["linear", "fixed", "quadratic", "logarithmic", "step"]
rounds_and_sizes = st.tuples(st.integers(1, 60), st.integers(1, 5), st.integers(1, 12))  # T, m, s


def outcomes(similarity: list[list[Fraction]], keep: int) -> set[frozenset[int]]:
    """All sets that greedy removal may leave, one per way of breaking ties; every sum is taken anew, exactly."""

    def tied(candidates: list[int], sums: dict[int, Fraction]) -> list[int]:
        least = min(sums[e] for e in candidates)
        return [e for e in candidates if sums[e] - least <= Fraction(1, 10**9)]

    def leave(remaining: frozenset[int]) -> set[frozenset[int]]:
        if len(remaining) == keep:
            return {remaining}
        others = {e: [similarity[e][i] for i in remaining if i != e] for e in remaining}
        conflict = {e: sum((min(Fraction(0), rho) for rho in row), Fraction(0)) for e, row in others.items()}
        plain = {e: sum(row, Fraction(0)) for e, row in others.items()}
        candidates = tied(tied(sorted(remaining), conflict), plain)
        return set().union(*(leave(remaining - {e}) for e in candidates))

    return leave(frozenset(range(len(similarity))))


def symmetric(size: int, pairs: dict[tuple[int, int], Fraction]) -> list[list[Fraction]]:
    """Fill a symmetric matrix from its pairs, with 1 on the diagonal; pairs not named have 0."""
    rows = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    for (i, j), rho in pairs.items():
        rows[i][j] = rows[j][i] = rho
    return rows


def floats(rows: list[list[Fraction]]) -> np.ndarray:
    return np.array([[float(rho) for rho in row] for row in rows])


def tenths(rows: dict[tuple[int, int], int], size: int) -> list[list[Fraction]]:
    return symmetric(size, {pair: Fraction(value, 10) for pair, value in rows.items()})


def kept(similarity: np.ndarray, keep: int, seed: int = 0) -> frozenset[int]:
    result = keep_most_compatible(similarity, keep, np.random.default_rng(seed))
    assert result == sorted(set(result))
    return frozenset(result)


# Greedy removal


@st.composite
def similarities_with_ties(draw: st.DrawFn) -> list[list[Fraction]]:
    """Tenths: many exact ties, and none of the values is exact in binary, so sums carry residue."""
    size = draw(st.integers(1, 7))
    return tenths({pair: draw(st.integers(-4, 4)) for pair in combinations(range(size), 2)}, size)


@given(similarities_with_ties(), st.integers(0, 7), st.integers(0, 2**32 - 1))
@settings(max_examples=300, deadline=None)
def test_greedy_removal_leaves_what_brute_force_leaves_where_many_sums_tie(
    similarity: list[list[Fraction]], keep: int, seed: int
) -> None:
    assume(keep <= len(similarity))
    assert kept(floats(similarity), keep, seed) in outcomes(similarity, keep)


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.data())
@settings(max_examples=150, deadline=None)
def test_greedy_removal_leaves_what_brute_force_leaves_on_cosines_of_random_vectors(
    seed: int, size: int, data: st.DataObject
) -> None:
    keep = data.draw(st.integers(2, size))  # below 2 a pair is left, and a pair always ties
    vectors = np.random.default_rng(seed).normal(size=(size, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = vectors @ vectors.T
    exact = [[Fraction(float(similarity[min(i, j), max(i, j)])) for j in range(size)] for i in range(size)]
    possible = outcomes(exact, keep)
    assert possible == {kept(similarity, keep, seed)}


def test_removal_is_greedy_not_one_shot() -> None:
    """Four clients; ρ12 = −.5, ρ13 = .9, ρ14 = −.2, ρ23 = −.4, ρ24 = .3, ρ34 = −.3.

    Conflict sums (negatives only): client 1: −.5 − .2 = −.7; 2: −.5 − .4 = −.9; 3: −.4 − .3 = −.7;
    4: −.2 − .3 = −.5. Client 2 goes. Without it 1: −.2; 3: −.3; 4: −.5. Client 4 goes: {1, 3} stay.
    By the first sums alone (one-shot) client 4 would have been the last to go.
    """
    similarity = tenths({(0, 1): -5, (0, 2): 9, (0, 3): -2, (1, 2): -4, (1, 3): 3, (2, 3): -3}, 4)
    assert kept(floats(similarity), 3) == {0, 2, 3}
    assert kept(floats(similarity), 2) == {0, 2}


def test_positive_similarities_do_not_make_up_for_conflict() -> None:
    """Four clients; ρ12 = −.6, ρ13 = −.1, ρ14 = .9, ρ23 = .1.

    Conflict sums: 1: −.7; 2: −.6; 3: −.1; 4: 0, so client 1 goes, though its plain sum (.2) is above that of
    client 2 (−.5).
    """
    similarity = tenths({(0, 1): -6, (0, 2): -1, (0, 3): 9, (1, 2): 1}, 4)
    assert kept(floats(similarity), 3) == {1, 2, 3}


def test_without_conflict_the_least_similar_goes() -> None:
    """ρ12 = .1, ρ13 = .5, ρ23 = .4: no conflict at all; plain sums .6, .5, .9: client 2 goes, for every seed."""
    similarity = floats(tenths({(0, 1): 1, (0, 2): 5, (1, 2): 4}, 3))
    assert {kept(similarity, 2, seed) for seed in range(20)} == {frozenset({0, 2})}


@pytest.mark.parametrize(("gap", "gone"), [(5e-10, 1), (2e-9, 0)])
def test_sums_closer_than_a_billionth_are_tied(gap: float, gone: int) -> None:
    """Client 1 has more conflict by `gap`; client 2 has the lower plain sum, which decides only if they tie."""
    similarity = np.eye(5)
    for i, j, rho in [(0, 2, -0.5 - gap), (0, 4, 0.9), (1, 3, -0.5), (1, 4, 0.1), (2, 4, 0.95), (3, 4, 0.95)]:
        similarity[i, j] = similarity[j, i] = rho
    assert kept(similarity, 4) == set(range(5)) - {gone}


def test_the_diagonal_does_not_count() -> None:
    similarity = floats(tenths({(0, 1): -5, (0, 2): 9, (0, 3): -2, (1, 2): -4, (1, 3): 3, (2, 3): -3}, 4))
    for diagonal in ([-9.0, 0, 0, 0], [0, 0, 9.0, 0]):
        np.fill_diagonal(similarity, diagonal)
        assert kept(similarity, 2) == {0, 2}


def test_all_or_none_may_stay() -> None:
    similarity = floats(tenths({(0, 1): -5}, 3))
    assert kept(similarity, 3) == {0, 1, 2}
    assert kept(similarity, 0) == frozenset()


def test_the_matrix_is_left_as_it_was() -> None:
    similarity = floats(tenths({(0, 1): -5, (1, 2): 3}, 3))
    before = similarity.copy()
    kept(similarity, 1)
    assert np.array_equal(similarity, before)


# Chance


def test_full_ties_are_broken_by_chance_evenly_and_by_the_seed_alone() -> None:
    similarity = np.eye(4)  # nothing known of anybody: the first round
    drawn = [kept(similarity, 2, seed) for seed in range(600)]
    assert drawn == [kept(similarity, 2, seed) for seed in range(600)]
    counts = Counter(drawn)
    assert set(counts) == {frozenset(pair) for pair in combinations(range(4), 2)}
    assert all(65 <= count <= 135 for count in counts.values())  # 100 expected, standard deviation 9


def test_chance_decides_only_among_the_tied() -> None:
    """Clients 1 and 2 conflict with each other alone: one of the two goes, either of them."""
    similarity = floats(tenths({(0, 1): -5}, 4))
    assert {kept(similarity, 3, seed) for seed in range(40)} == {frozenset({1, 2, 3}), frozenset({0, 2, 3})}


# Schedules


def share_by_the_paper(name: ScheduleName, t: int, rounds: int) -> Decimal:
    """R(t) as the paper words it, to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        x = Decimal(2 * t) / Decimal(rounds)
        value = {
            "linear": x,
            "fixed": Decimal(1),
            "quadratic": x * x,
            "logarithmic": ((Decimal(1).exp() - 1) * x + 1).ln(),
            "step": Decimal(20 * t // rounds) / 10,  # + 0.1 every T/20 rounds
        }[name]
        return min(value, Decimal(1))


def students(name: ScheduleName, t: int, rounds: int, exits: int, clients: int) -> list[list[int]]:
    similarity = np.random.default_rng(t).uniform(-1, 1, (clients, clients))
    return select_students((similarity + similarity.T) / 2, SCHEDULES[name](t, rounds), exits, np.random.default_rng(t))


def test_there_are_five_schedules() -> None:
    assert set(SCHEDULES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@given(rounds_and_sizes)
@settings(max_examples=25, deadline=None)
def test_number_of_students_is_the_share_rounded_down_and_never_falls(
    name: ScheduleName, sizes: tuple[int, int, int]
) -> None:
    rounds, exits, clients = sizes
    full = (exits - 1) * clients
    before = 0
    for t in range(1, rounds + 1):
        chosen = students(name, t, rounds, exits, clients)
        assert len(chosen) == clients
        count = sum(len(set(row) - {exits - 1}) for row in chosen)
        exact = full * share_by_the_paper(name, t, rounds)
        # 50 digits put 1/3 · 3 just below 1: add a hair before rounding down.
        assert count == math.floor(exact + Decimal(10) ** -12)
        assert count >= before
        before = count
        if 2 * t >= rounds or name == "fixed":
            assert count == full
        elif full:
            assert count < full


@pytest.mark.parametrize("rounds", [1, 2, 7, 20, 300])
def test_share_by_hand(rounds: int) -> None:
    for t in range(1, rounds + 1):
        late = 2 * t >= rounds
        assert SCHEDULES["linear"](t, rounds) == (1 if late else Fraction(2 * t, rounds))
        assert SCHEDULES["quadratic"](t, rounds) == (1 if late else Fraction(4 * t * t, rounds * rounds))
        assert SCHEDULES["fixed"](t, rounds) == 1
        assert SCHEDULES["step"](t, rounds) * 10 == (10 if late else (20 * t) // rounds)
        logarithmic = 1.0 if late else math.log1p(2 * (math.e - 1) * t / rounds)
        assert float(SCHEDULES["logarithmic"](t, rounds)) == pytest.approx(logarithmic, abs=1e-15)


@given(rounds_and_sizes, st.integers(1, 60))
@settings(max_examples=300, deadline=None)
def test_linear_counts_are_the_integer_formula(sizes: tuple[int, int, int], t: int) -> None:
    """Spec 5.1 step 1, in integers throughout: q = min(2t(m−1), (m−1)T); D = q div T; K = ⌊s · (q mod T) / T⌋."""
    rounds, exits, clients = sizes
    assume(t <= rounds)
    q = min(2 * t * (exits - 1), (exits - 1) * rounds)
    expected = (q // rounds, clients * (q % rounds) // rounds)
    assert student_counts(SCHEDULES["linear"](t, rounds), exits, clients) == expected


def test_counts_do_not_suffer_from_binary_fractions() -> None:
    """m = 4, T = 300, s = 100, t = 29: 3 · 58/300 = 0.58, of 100 clients 58; in floats 0.58 · 100 is 57.99…"""
    assert math.floor(100 * 0.58) == 57
    assert student_counts(SCHEDULES["linear"](29, 300), 4, 100) == (0, 58)


# Shape of the sets


@pytest.mark.parametrize("name", NAMES)
@given(rounds_and_sizes, st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_depth_comes_first(name: ScheduleName, sizes: tuple[int, int, int], t: int) -> None:
    """S_i = {1..D}, for K clients also D+1, and m."""
    rounds, exits, clients = sizes
    assume(t <= rounds)
    exact = (exits - 1) * SCHEDULES[name](t, rounds)
    depth = math.floor(exact)
    chosen = students(name, t, rounds, exits, clients)
    plain = sorted({*range(depth), exits - 1})
    longer = sorted({*range(depth + 1), exits - 1})
    assert all(row in (plain, longer) for row in chosen)
    if plain != longer:
        assert sum(row == longer for row in chosen) == math.floor(clients * (exact - depth))


@given(similarities_with_ties(), st.integers(1, 20), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_the_next_depth_goes_to_those_whom_greedy_removal_leaves(
    similarity: list[list[Fraction]], t: int, seed: int
) -> None:
    share = SCHEDULES["linear"](t, 40)
    depth, extra = student_counts(share, 4, len(similarity))
    chosen = select_students(floats(similarity), share, 4, np.random.default_rng(seed))
    if depth < 3:
        deeper = frozenset(client for client, row in enumerate(chosen) if depth in row)
        assert deeper in outcomes(similarity, extra)


def test_a_round_worked_by_hand() -> None:
    """m = 4, s = 4, t = 5, T = 12: 3 · 10/12 = 2.5, so D = 2 and K = 2; {1, 3} stay of the example above."""
    similarity = floats(tenths({(0, 1): -5, (0, 2): 9, (0, 3): -2, (1, 2): -4, (1, 3): 3, (2, 3): -3}, 4))
    chosen = select_students(similarity, SCHEDULES["linear"](5, 12), 4, np.random.default_rng(0))
    assert chosen == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 2, 3], [0, 1, 3]]


def test_early_on_only_the_last_exit_trains() -> None:
    """m = 3, s = 4, t = 1, T = 100: 2 · 2/100 · 4 = 0.16 students, rounded down to none."""
    assert select_students(np.eye(4), SCHEDULES["linear"](1, 100), 3, np.random.default_rng(0)) == [[2]] * 4


@pytest.mark.parametrize("name", NAMES)
def test_a_single_exit_has_no_students(name: ScheduleName) -> None:
    for t in range(1, 11):
        assert select_students(np.eye(3), SCHEDULES[name](t, 10), 1, np.random.default_rng(0)) == [[0]] * 3
