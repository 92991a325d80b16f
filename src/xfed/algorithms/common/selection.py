"""Conflict-aware student selection: which exits train in a round (Section 4.2).

Pure functions on arrays and integers, without any federation around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
ScheduleName = Literal["linear", "fixed", "quadratic", "logarithmic", "step"]
TIED = 1e-9
"""Sums closer than this count as tied: sums kept up incrementally leave float residue where exact ties were."""


def _logarithmic(t: int, rounds: int) -> Fraction:
    if 2 * t >= rounds:
        return Fraction(1)
    return Fraction(math.log(2 * (math.e - 1) * t / rounds + 1))


SCHEDULES: dict[ScheduleName, Callable[[int, int], Fraction]] = {
    "linear": lambda t, rounds: min(Fraction(2 * t, rounds), Fraction(1)),
    "fixed": lambda t, rounds: Fraction(1),
    "quadratic": lambda t, rounds: min(Fraction(2 * t, rounds) ** 2, Fraction(1)),
    "logarithmic": _logarithmic,
    "step": lambda t, rounds: Fraction(min(20 * t // rounds, 10), 10),
}
"""Share R(t) of the student exits that train in round t of T, in exact arithmetic."""


def student_counts(share: Fraction, exits: int, clients: int) -> tuple[int, int]:
    """Split the share into D, the depths at which every client's exit trains, and K, how many at the next one.

    (m − 1)·R = D + remainder; K = ⌊s · remainder⌋.
    """
    depth, remainder = divmod((exits - 1) * share, 1)
    return int(depth), math.floor(clients * remainder)


def keep_most_compatible(similarity: Matrix, keep: int, rng: np.random.Generator) -> list[int]:
    """Greedily remove the client in most conflict with those that remain, until `keep` are left.

    Conflict counts negative similarities only: Σ_{i ∈ ℰ, i ≠ e} min(0, ρ_ie), lowest goes first. Ties go to
    the lower sum of plain similarities, then to chance. Sums are kept up incrementally: O(s²) in all.
    """
    size = len(similarity)
    plain = similarity - np.diag(np.diag(similarity))
    conflict = np.minimum(plain, 0.0)
    conflict_sums, plain_sums = conflict.sum(axis=1), plain.sum(axis=1)
    chance = rng.permutation(size)
    remaining = np.ones(size, dtype=bool)
    for _ in range(size - keep):
        candidates = np.flatnonzero(remaining)
        for sums in (conflict_sums, plain_sums):
            values = sums[candidates]
            candidates = candidates[values <= values.min() + TIED]
        removed = candidates[np.argmin(chance[candidates])]
        remaining[removed] = False
        conflict_sums -= conflict[removed]
        plain_sums -= plain[removed]
    return [int(index) for index in np.flatnonzero(remaining)]


def select_students(similarity: Matrix, share: Fraction, exits: int, rng: np.random.Generator) -> list[list[int]]:
    """Choose each client's training exits S_i = {1..D} ∪ {D+1 if selected} ∪ {m}, as indices from 0."""
    clients = len(similarity)
    depth, extra = student_counts(share, exits, clients)
    chosen = set(keep_most_compatible(similarity, extra, rng)) if extra else set()
    return [sorted({*range(depth), exits - 1} | ({depth} if client in chosen else set())) for client in range(clients)]
