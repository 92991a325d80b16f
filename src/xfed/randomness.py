"""Random streams that depend only on who draws, when and what for.

A stream is named by (seed, purpose, client, round, phase). Nothing else enters: not the method, not the
worker, not what was drawn before. So methods that should coincide do, and a run can be cut and resumed
anywhere.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import numpy as np

SERVER = -1
"""Stands for the server where a client's number is asked for."""


class Purpose(StrEnum):
    """What a stream is for. Never a method's name: equal purposes give equal bits."""

    INITIAL_WEIGHTS = "initial-weights"
    PARTITION = "partition"
    CALIBRATION = "calibration"
    COHORTS = "cohorts"
    BATCHES = "batches"
    DROPOUT = "dropout"
    TUNING = "tuning"
    TIES = "ties"
    EVALUATED = "evaluated"
    AUGMENTATION = "augmentation"


def derive(seed: int, purpose: Purpose, client: int = SERVER, round: int = 0, phase: int = 0) -> int:
    """Hash the stream's name to a 63-bit seed."""
    name = f"xfed/{seed}/{purpose}/{client}/{round}/{phase}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1


def numpy_stream(seed: int, purpose: Purpose, client: int = SERVER, round: int = 0) -> np.random.Generator:
    """Open the stream as a NumPy generator."""
    return np.random.default_rng(derive(seed, purpose, client, round))
