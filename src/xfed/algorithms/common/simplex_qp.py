"""min αᵀPα over the simplex, P positive semi-definite: FedPAC's quadratic program, without an external solver.

With P = XXᵀ this is the point of smallest norm in the convex hull of the rows of X. Wolfe's method finds it in
finitely many steps: grow a set of rows by the one most in the way, and drop those the minimum does not need.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
STEPS_PER_ROW = 50


def smallest_norm_weights(gram: Matrix, tolerance: float = 1e-12) -> Vector | None:
    """Give the weights, or nothing where numbers are not finite or no minimum is reached."""
    if not np.isfinite(gram).all():
        return None
    scale = max(float(np.abs(gram).max()), np.finfo(float).tiny)
    p = gram / scale
    size = len(p)
    weights = np.zeros(size)
    active = [int(np.argmin(np.diag(p)))]
    weights[active] = 1.0
    for _ in range(STEPS_PER_ROW * size):
        slopes = p @ weights
        entering = int(np.argmin(slopes))
        if slopes[entering] >= weights @ slopes - tolerance or entering in active:
            return weights
        active.append(entering)
        while True:
            affine = _affine_minimum(p[np.ix_(active, active)])
            current = weights[active]
            if (affine > tolerance).all():
                weights[active] = affine
                break
            falling = affine <= tolerance
            steps = current[falling] / np.maximum(current[falling] - affine[falling], np.finfo(float).tiny)
            step = min(1.0, float(steps.min()))
            moved = current + step * (affine - current)
            weights[active] = np.where(moved > tolerance, moved, 0.0)
            active = [row for row in active if weights[row] > 0]
            weights /= weights.sum()
    return None


def _affine_minimum(p: Matrix) -> Vector:
    """Minimise αᵀPα with Σα = 1 and no other constraint; the least-squares solution where P is singular."""
    size = len(p)
    system = np.block([[p, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    solution = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
    normalised: Vector = solution / solution.sum()
    return normalised
