"""Clients that may share samples: for more clients than the data has samples for.

The data is cut into a train pool and a test pool first, and every client draws its own samples from these. Between
clients a sample may be drawn again, within one client never. So no sample is ever trained on by one client and tested
on by another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xfed.data.dealing.partition import Partition
from xfed.data.dealing.ways import Indices
from xfed.errors import InputError
from xfed.memory import refuse_too_large

TOGETHER = 2**18
"""Samples drawn at once: bounds the memory for any number of clients."""
INDEX_BYTES, BOUND_BYTES = 4, 16
"""Of a sample's index; of a bound between two parts of a client, while they are added up."""


def overlapping(
    labels: Indices, clients: int, size: int, alpha: float, shares: tuple[float, float], rng: np.random.Generator
) -> Partition:
    """Let every client draw `size` samples with label skew Dir(α); `shares`: of training, of calibration within it.

    Client i's classes follow q_ik ∝ N_k g_ik, g_i ~ Dir(α·1), with N_k samples of class k in the data: the limit of
    the usual Dirichlet partition for many clients. Its train and its test samples are drawn by the same q_i.
    """
    refuse_too_large(
        f"a partition of {clients:,} clients with {size} samples each",
        clients * (size * INDEX_BYTES + 3 * BOUND_BYTES),
        "use fewer clients or a smaller samples_per_client",
    )
    train_pool, test_pool = _pools(labels, shares[0], rng)
    train = int(shares[0] * size)
    if train > len(train_pool) or size - train > len(test_pool):
        raise InputError(
            f"samples_per_client is {size}, {train} to train and {size - train} to test, but the pools hold "
            f"{len(train_pool)} and {len(test_pool)} samples; use a smaller samples_per_client"
        )
    prior = np.unique(labels, return_counts=True)[1]
    indices = np.empty((clients, size), dtype=np.int32)
    step = max(1, TOGETHER // size)
    for start in range(0, clients, step):
        block = indices[start : start + step]
        wishes = rng.dirichlet(np.full(len(prior), alpha), len(block)) * prior
        block[:, :train] = train_pool.draw(wishes, train, rng)
        block[:, train:] = test_pool.draw(wishes, size - train, rng)
    calibration = int(shares[1] * train)
    lengths = np.tile([train - calibration, calibration, size - train], clients)
    return Partition(indices.reshape(-1), np.cumsum(np.append(0, lengths)), overlapping=True)


def _pools(labels: Indices, share: float, rng: np.random.Generator) -> tuple[_Pool, _Pool]:
    """Cut each class at random into what is trained on and what is tested on."""
    train, test = [], []
    for label in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == label))
        cut = int(share * len(samples))
        train.append(samples[:cut])
        test.append(samples[cut:])
    return _Pool(train), _Pool(test)


class _Pool:
    """Samples to draw from, class after class."""

    def __init__(self, by_class: list[Indices]) -> None:
        self._samples = np.concatenate(by_class).astype(np.int32)
        self._room = np.array([len(samples) for samples in by_class])
        self._starts = np.cumsum(self._room) - self._room

    def __len__(self) -> int:
        return len(self._samples)

    def draw(self, wishes: NDArray[np.float64], size: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw `size` different samples for each row of wishes (rows × classes), in random order.

        Each set of a class's samples is equally likely. Where a row asks for more than half of a class, that class is
        shuffled; else places are drawn, and drawn again as long as two are the same.
        """
        counts = self._counts(wishes, size, rng)
        classes = np.tile(np.arange(len(self._room)), len(counts))
        kinds = np.repeat(classes, counts.ravel()).reshape(len(counts), size)
        places = np.zeros(kinds.shape, dtype=np.int64)
        crowded = 2 * counts > self._room
        for kind in np.flatnonzero(crowded.any(axis=0)):
            rows = crowded[:, kind]
            shuffled = rng.random((np.count_nonzero(rows), self._room[kind])).argsort(axis=1)
            wanted = np.arange(self._room[kind]) < counts[rows, kind, None]
            places[(kinds == kind) & rows[:, None]] = shuffled[wanted]
        sparse = ~np.take_along_axis(crowded, kinds, axis=1)
        again = sparse.copy()
        while again.any():
            places[again] = rng.integers(self._room[kinds[again]])
            redrawn = np.flatnonzero(again.any(axis=1))
            again[redrawn] = sparse[redrawn] & _repeated(places[redrawn] + self._starts[kinds[redrawn]])
        drawn: NDArray[np.int32] = rng.permuted(self._samples[places + self._starts[kinds]], axis=1)
        return drawn

    def _counts(self, wishes: NDArray[np.float64], size: int, rng: np.random.Generator) -> Indices:
        """Draw how many samples of each class each row gets: by its wishes, as long as the class has any left."""
        counts = np.zeros(wishes.shape, dtype=np.int64)
        while True:
            missing = size - counts.sum(axis=1)
            rows = np.flatnonzero(missing)
            if len(rows) == 0:
                return counts
            left = self._room - counts[rows]
            odds = np.where(left > 0, wishes[rows], 0.0)
            odds = np.where(odds.sum(axis=1, keepdims=True) > np.finfo(float).tiny, odds, left)
            more = rng.multinomial(missing[rows], odds / odds.sum(axis=1, keepdims=True))
            counts[rows] += np.minimum(more, left)


def _repeated(rows: Indices) -> NDArray[np.bool_]:
    """Mark what has stood in the same row before."""
    order = rows.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    repeated = np.zeros(rows.shape, dtype=np.bool_)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return repeated
