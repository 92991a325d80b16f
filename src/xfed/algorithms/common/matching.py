"""Cross-client teacher matching: whose last exits a client learns from (Section 4.3).

The paper's quadratic program, max_k kᵀc − μ‖k − 1/n‖² over the simplex, is exactly the Euclidean projection
of 1/n + c/(2μ) onto it: sorting replaces a solver.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def cosines(rows: Matrix, columns: Matrix, row_ids: Sequence[int], column_ids: Sequence[int]) -> Matrix:
    """Give the cosines between vectors of clients.

    A pair with a zero (or unknown) vector has cosine 0; a client with itself always has 1.
    """
    lengths = np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(columns, axis=1))
    result: Matrix = np.divide(rows @ columns.T, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    np.clip(result, -1.0, 1.0, out=result)
    result[np.equal.outer(np.asarray(row_ids), np.asarray(column_ids))] = 1.0
    return result


def project_on_simplex(rows: Matrix) -> Matrix:
    """Project each row onto {k ≥ 0, Σ k = 1}, all rows at once, in O(n log n) each.

    k = max(v − θ, 0) with the one θ that makes the sum 1. Rows are shifted to a largest entry of 0 first: the
    projection does not change, and a row with one dominating entry becomes exactly one-hot.
    """
    shifted = rows - rows.max(axis=1, keepdims=True)
    falling = -np.sort(-shifted, axis=1)
    excess = np.cumsum(falling, axis=1) - 1.0
    ranks = np.arange(1, rows.shape[1] + 1)
    support = np.count_nonzero(falling * ranks > excess, axis=1)
    threshold = excess[np.arange(len(rows)), support - 1] / support
    projected: Matrix = np.maximum(shifted - threshold[:, None], 0.0)
    return projected


def match_teachers(similarity: Matrix, mu: float) -> Matrix:
    """Give the distillation weights k of every student (row) over the teachers (columns).

    Large μ: all teachers alike. Small μ: the client's own last exit alone.
    """
    return project_on_simplex(1.0 / similarity.shape[1] + similarity / (2.0 * mu))
