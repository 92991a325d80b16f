"""Ways to deal a data set's samples out to clients. Each gives one array of sample indices per client.

No sample goes to two clients; all draws come from the generator given, so a seed decides everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xfed.errors import InputError

Indices = NDArray[np.int64]
REDRAWS = 5_000
WAY_OUT = "partition_by 'overlapping', where clients may share samples"


def dirichlet(
    labels: Indices, clients: int, alpha: float, minimum: int, rng: np.random.Generator, cap: bool = True
) -> list[Indices]:
    """Deal out samples with label skew Dir(α) (Section 5.1 of the paper).

    For each class, shares over clients are drawn from Dir(α·1) and the class is cut along them. With `cap`, as in
    PFLlib, a client that already holds its fair number N / n gets no more: sizes then vary less. All is drawn again
    until every client has at least `minimum` samples. Every sample is dealt out.
    """
    if clients * minimum > len(labels):
        raise InputError(
            f"{len(labels):,} samples are too few for {clients} clients with at least {minimum} each; "
            f"use fewer clients, a smaller min_samples or {WAY_OUT}"
        )
    fair = len(labels) / clients if cap else np.inf
    pools = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(REDRAWS):
        owner = np.empty(len(labels), dtype=np.int64)
        held = np.zeros(clients, dtype=np.int64)
        for pool in pools:
            shares = rng.dirichlet(np.full(clients, alpha)) * (held < fair)
            if not shares.sum() > 0:
                break
            cuts = (np.cumsum(shares / shares.sum())[:-1] * len(pool)).astype(np.int64)
            counts = np.diff(cuts, prepend=0, append=len(pool))
            owner[rng.permutation(pool)] = np.repeat(np.arange(clients), counts)
            held += counts
        else:
            if held.min() >= minimum:
                return np.split(np.argsort(owner, kind="stable"), np.cumsum(held)[:-1])
    raise InputError(
        f"no Dirichlet partition in {REDRAWS:,} draws gave each of {clients} clients at least {minimum} samples "
        f"at alpha {alpha}; use fewer clients, a larger alpha, a smaller min_samples, another seed or {WAY_OUT}"
    )


def pathological(
    labels: Indices, clients: int, per_client: int, minimum: int, rng: np.random.Generator
) -> list[Indices]:
    """Give every client samples of exactly `per_client` classes (McMahan et al., 2017, with whole-class shards).

    Clients choose one after the other among the classes that fewest have chosen so far, so the numbers of clients
    per class differ by at most one. A class is then cut into equal shards, one for each client that chose it.
    Every sample is dealt out.
    """
    classes = np.unique(labels)
    least = -(-len(classes) // clients)
    if not least <= per_client <= len(classes):
        raise InputError(
            f"classes_per_client is {per_client}; allowed with {clients} clients and {len(classes)} classes: "
            f"{least} to {len(classes)}"
        )
    chosen_by: list[list[int]] = [[] for _ in classes]
    for client in range(clients):
        chosen = np.lexsort((rng.random(len(classes)), np.array([len(holders) for holders in chosen_by])))[:per_client]
        for index in chosen:
            chosen_by[index].append(client)
    shards: list[list[Indices]] = [[] for _ in range(clients)]
    for label, holders in zip(classes, chosen_by, strict=True):
        pool = rng.permutation(np.flatnonzero(labels == label))
        if len(pool) < len(holders):
            raise InputError(
                f"class {label} has {len(pool)} samples for {len(holders)} clients; "
                f"use fewer clients, fewer classes_per_client or {WAY_OUT}"
            )
        for client, shard in zip(holders, np.array_split(pool, len(holders)), strict=True):
            shards[client].append(shard)
    return _large_enough([np.concatenate(parts) for parts in shards], minimum)


def iid(samples: int, clients: int, minimum: int, rng: np.random.Generator) -> list[Indices]:
    """Deal all samples out at random, the same number to every client (give or take one)."""
    return _large_enough(np.array_split(rng.permutation(samples), clients), minimum)


def natural(groups: Indices, minimum: int) -> list[Indices]:
    """Make every natural client of the data a client, in the order of their numbers.

    Those with fewer than `minimum` samples are left out, with their samples.
    """
    order = np.argsort(groups, kind="stable")
    sizes = np.unique(groups, return_counts=True)[1]
    owned = [part for part in np.split(order, np.cumsum(sizes)[:-1]) if len(part) >= minimum]
    if not owned:
        raise InputError(
            f"no client of the data has {minimum} samples, the largest has {sizes.max()}; use a smaller min_samples"
        )
    return owned


def _large_enough(owned: Sequence[Indices], minimum: int) -> list[Indices]:
    smallest = min(len(part) for part in owned)
    if smallest < minimum:
        raise InputError(
            f"a client would get {smallest} samples, but min_samples is {minimum}; "
            f"use fewer clients, a smaller min_samples or {WAY_OUT}"
        )
    return list(owned)
