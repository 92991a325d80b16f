"""Clients that share samples: what must hold for every draw, and that draws are fair."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xfed.data.dealing.overlapping as module
from xfed.data.dealing.overlapping import overlapping
from xfed.data.dealing.partition import Partition
from xfed.data.dealing.ways import Indices, dirichlet

SHARES = (0.75, 0.2)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def seen_and_tested(partition: Partition) -> tuple[list[int], list[int]]:
    seen = [index for split in partition for part in (split.train, split.calibration) for index in part.tolist()]
    return seen, [index for split in partition for index in split.test.tolist()]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    labels=st.lists(st.integers(0, 6), min_size=24, max_size=90),
    clients=st.integers(1, 40),
    share=st.floats(0.05, 1.0),
    alpha=st.sampled_from([0.001, 0.1, 1.0, 100.0]),
    together=st.sampled_from([1, 50, 2**18]),
)
def test_what_always_holds(
    seed: int, labels: list[int], clients: int, share: float, alpha: float, together: int
) -> None:
    classes = np.bincount(labels, minlength=7)
    most = int(4 / 3 * sum(int(0.75 * n) for n in classes))  # what the train pool can give; the test pool has more
    size = max(2, int(share * most))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TOGETHER", together)
        partition = overlapping(np.array(labels), clients, size, alpha, SHARES, rng(seed))
    train = int(0.75 * size)
    calibration = int(0.2 * train)
    assert len(partition) == clients
    assert partition.overlapping
    for split in partition:
        assert (len(split.train), len(split.calibration)) == (train - calibration, calibration), "exact sizes"
        assert len(split.test) == size - train
        mine = np.concatenate([split.train, split.calibration, split.test]).tolist()
        assert len(set(mine)) == len(mine), "never twice within a client"
        assert set(mine) <= set(range(len(labels)))
    seen, tested = seen_and_tested(partition)
    assert not set(seen) & set(tested), "nobody is tested on what anybody trains on"


def test_pools_are_cut_within_each_class_and_all_of_them_is_used() -> None:
    labels = np.repeat([0, 1, 2], [40, 8, 80])
    seen, tested = seen_and_tested(overlapping(labels, 3_000, 16, 1.0, SHARES, rng()))
    assert np.bincount(labels[sorted(set(seen))]).tolist() == [30, 6, 60]
    assert np.bincount(labels[sorted(set(tested))]).tolist() == [10, 2, 20]


def test_a_client_that_takes_everything_gets_everything() -> None:
    labels = np.arange(40) % 4
    for split in overlapping(labels, 5, 36, 0.05, SHARES, rng()):
        assert len({*split.train.tolist(), *split.calibration.tolist()}) == 27
    # 7 of 10 per class to train on: all 28 of them, whatever the client wishes for.
    everything = overlapping(labels, 5, 38, 0.05, SHARES, rng())
    assert {len({*split.train.tolist(), *split.calibration.tolist()}) for split in everything} == {28}
    assert {tuple(np.bincount(labels[np.append(s.train, s.calibration)])) for s in everything} == {(7, 7, 7, 7)}


@pytest.mark.parametrize("wanted", [2, 4])
def test_every_set_of_samples_is_equally_likely(wanted: int) -> None:
    """Two of six samples are drawn and drawn again, four of six are shuffled: all 15 sets each way."""
    pool = module._Pool([np.arange(6)])
    drawn = pool.draw(np.ones((30_000, 1)), wanted, rng())
    counts = Counter(tuple(sorted(row)) for row in drawn.tolist())
    assert set(counts) == set(combinations(range(6), wanted))
    # Each set: 30,000 draws at 1/15, standard deviation sqrt(30,000 · 1/15 · 14/15) ≈ 43.2; five of them is 216.
    assert all(abs(count - 2_000) < 216 for count in counts.values())
    firsts = np.bincount(drawn[:, 0], minlength=6)
    assert all(abs(count - 5_000) < 5 * np.sqrt(30_000 * 5 / 36) for count in firsts), "in random order"


def skew(owned: list[Indices], labels: Indices) -> float:
    """Mean over clients of Σ_k q_k², the chance that two of a client's samples are of one class."""
    shares = [np.bincount(labels[indices], minlength=10) / len(indices) for indices in owned]
    return float(np.mean([(share**2).sum() for share in shares]))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_label_skew_is_that_of_the_dirichlet_distribution(alpha: float) -> None:
    """E Σ_k q_k² = (α + 1) / (K α + 1) for Dir(α·1); a sample of n adds (1 − that) / n."""
    labels = np.arange(6_000) % 10
    partition = overlapping(labels, 2_000, 80, alpha, (0.75, 0.0), rng())
    expected = (alpha + 1) / (10 * alpha + 1)
    for part, size in (("train", 60), ("test", 20)):
        found = skew([getattr(split, part) for split in partition], labels)
        assert found == pytest.approx(expected + (1 - expected) / size, rel=0.05)


def test_train_and_test_samples_follow_the_same_classes() -> None:
    labels = np.arange(6_000) % 10
    partition = overlapping(labels, 500, 80, 0.1, (0.75, 0.0), rng())
    train = partition.class_counts(labels, 10, ("train",)) / 60
    test = partition.class_counts(labels, 10, ("test",)) / 20
    overlap = np.minimum(train, test).sum(axis=1).mean()
    strangers = np.minimum(train, np.roll(test, 1, axis=0)).sum(axis=1).mean()
    assert overlap > 0.8 > 0.4 > strangers


def test_rare_classes_stay_rare_as_in_the_usual_partition() -> None:
    labels = np.repeat([0, 1], [5_400, 600])
    counts = overlapping(labels, 4_000, 40, 1.0, SHARES, rng()).class_counts(labels, 2)
    # q_1 = g_1 / (g_1 + 9 g_0) with g_1 uniform on [0, 1] and g_0 = 1 − g_1; its mean is (9 ln 9 − 8) / 64.
    expected = (9 * np.log(9) - 8) / 64
    assert (counts[:, 1] / 40).mean() == pytest.approx(expected, rel=0.05)
    usual = [part for seed in range(40) for part in dirichlet(labels, 50, 1.0, 1, rng(seed), cap=False)]
    assert np.mean([(labels[part] == 1).mean() for part in usual]) == pytest.approx(expected, rel=0.05)
