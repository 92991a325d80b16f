"""Each way of dealing samples out does what its name says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xfed.data.dealing.ways import Indices, dirichlet, iid, natural, pathological
from xfed.errors import InputError

LABELS = np.repeat(np.arange(10), 60)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def each_once(owned: Sequence[Indices], samples: int) -> bool:
    return sorted(np.concatenate(owned).tolist()) == list(range(samples))


def classes_of(owned: Sequence[Indices], labels: Indices = LABELS) -> list[set[int]]:
    return [set(labels[indices].tolist()) for indices in owned]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 12), cap=st.booleans())
def test_dirichlet_deals_every_sample_once(seed: int, clients: int, cap: bool) -> None:
    owned = dirichlet(LABELS, clients, 0.5, 1, rng(seed), cap)
    assert len(owned) == clients
    assert each_once(owned, len(LABELS))
    assert min(map(len, owned)) >= 1


def test_the_cap_stops_clients_that_have_enough() -> None:
    # Class by class: who holds N / n = 300 or more before a class is dealt out gets nothing of it.
    for seed in range(20):
        owned = dirichlet(LABELS, 2, 0.1, 1, rng(seed))
        for indices in owned:
            mine = np.bincount(LABELS[indices], minlength=10)
            before = np.cumsum(mine) - mine
            assert not mine[before >= 300].any()
            assert len(indices) <= 300 + 59


def test_without_the_cap_sizes_vary_more() -> None:
    spread = {
        cap: np.mean(
            [np.std([len(part) for part in dirichlet(LABELS, 6, 0.1, 1, rng(seed), cap)]) for seed in range(10)]
        )
        for cap in (True, False)
    }
    assert spread[False] > 1.3 * spread[True]


def test_dirichlet_says_when_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xfed.data.dealing.ways.REDRAWS", 20)
    with pytest.raises(
        InputError, match=r"no Dirichlet partition in 20 draws gave each of 100 clients at least 6.*'overl"
    ):
        dirichlet(LABELS, 100, 0.1, 6, rng())
    with pytest.raises(InputError, match="600 samples are too few for 100 clients with at least 7 each"):
        dirichlet(LABELS, 100, 0.1, 7, rng())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 30), per_client=st.integers(1, 10))
def test_pathological_gives_everyone_so_many_classes(seed: int, clients: int, per_client: int) -> None:
    if clients * per_client < 10:
        return
    owned = pathological(LABELS, clients, per_client, 2, rng(seed))
    assert each_once(owned, len(LABELS))
    assert {len(found) for found in classes_of(owned)} == {per_client}
    holders = Counter(label for found in classes_of(owned) for label in found)
    assert max(holders.values()) - min(holders.values()) <= 1
    for label in range(10):
        shares = [np.count_nonzero(LABELS[part] == label) for part in owned]
        shares = [share for share in shares if share]
        assert max(shares) - min(shares) <= 1, "equal shards"


def test_pathological_mixes_classes() -> None:
    pairs = {frozenset(found) for found in classes_of(pathological(LABELS, 30, 2, 1, rng()))}
    assert len(pairs) > 10, "not always the same neighbours"


@pytest.mark.parametrize(
    ("clients", "per_client", "sentence"),
    [
        (5, 11, "classes_per_client is 11; allowed with 5 clients and 10 classes: 2 to 10"),
        (5, 1, "classes_per_client is 1; allowed with 5 clients and 10 classes: 2 to 10"),
        (700, 1, "class [0-9] has 60 samples for 70 clients"),
        (200, 1, "a client would get 3 samples, but min_samples is 4"),
    ],
)
def test_pathological_says_what_is_allowed(clients: int, per_client: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        pathological(LABELS, clients, per_client, 4, rng())


def test_iid_sizes_differ_by_one_at_most() -> None:
    owned = iid(10, 4, 2, rng())
    assert sorted(map(len, owned)) == [2, 2, 3, 3]
    assert each_once(owned, 10)
    assert any(part.tolist() != sorted(part.tolist()) for part in owned), "at random"
    with pytest.raises(InputError, match="a client would get 2 samples, but min_samples is 3"):
        iid(10, 4, 3, rng())


def test_natural_clients_in_their_order_without_the_small_ones() -> None:
    groups = np.array([7, 3, 7, 3, 9, 7])
    assert [part.tolist() for part in natural(groups, 2)] == [[1, 3], [0, 2, 5]]
    assert [part.tolist() for part in natural(groups, 1)] == [[1, 3], [0, 2, 5], [4]]
    with pytest.raises(InputError, match="no client of the data has 4 samples, the largest has 3"):
        natural(groups, 4)
