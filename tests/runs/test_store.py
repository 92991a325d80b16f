"""Client states on disk: versions, the bounded cache, and what gets deleted when."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xfed.runs.store as store_module
from tests.bits import files
from xfed import InputError
from xfed.runs.store import ClientStore


def put(store: ClientStore, client: int, round: int, value: float) -> None:
    store.round = round
    store.put(client, {"x": torch.full((3,), value)})


def test_untouched_clients_have_nothing_and_no_files(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    put(store, 99_999, 1, 1.0)
    assert store.get(5) == {}
    assert store.known() == [99_999]
    assert files(tmp_path) == {"099/099999-000001.safetensors"}


def test_newest_version_wins_and_an_index_brings_back_an_older_one(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    put(store, 1, 1, 10.0)
    index = dict(store.versions)
    put(store, 1, 2, 20.0)
    assert store.get(1)["x"].tolist() == [20.0] * 3
    assert ClientStore(tmp_path, index).get(1)["x"].tolist() == [10.0] * 3


def test_written_but_not_counted_is_not_seen(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    put(store, 1, 1, 10.0)
    store.write(1, 2, {"x": torch.zeros(3)})
    assert store.get(1)["x"].tolist() == [10.0] * 3
    store.round = 2
    store.count(1)
    assert store.get(1)["x"].tolist() == [0.0] * 3


def test_collect_keeps_what_any_checkpoint_names(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    for round in (1, 2, 3):
        put(store, 1, round, float(round))
        store.collect([round - 1, round])
    assert files(tmp_path) == {"000/000001-000002.safetensors", "000/000001-000003.safetensors"}
    store.collect([3])
    assert files(tmp_path) == {"000/000001-000003.safetensors"}


def on_disk(root: Path) -> set[tuple[int, int]]:
    return {(int(path.stem[:6]), int(path.stem[7:])) for path in root.rglob("*.safetensors")}


@settings(deadline=None, max_examples=60)
@given(
    cohorts=st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=1, max_size=12),
    every=st.integers(1, 4),
    kills=st.sets(st.integers(1, 12), max_size=3),
    back=st.booleans(),
)
def test_collect_against_the_indexes_of_all_kept_checkpoints(
    cohorts: list[set[int]], every: int, kills: set[int], back: bool
) -> None:
    """Runs that are killed, also between writing and collecting, and resumed from either of two checkpoints.

    Right after each collection the disk must hold exactly what the kept indexes name; what a killed run wrote for
    rounds that come again may lie there too.
    """
    with TemporaryDirectory() as folder:
        root = Path(folder)
        indexes: dict[int, dict[int, int]] = {}
        pending = set(kills)
        store, round, furthest = ClientStore(root), 0, 0
        while round < len(cohorts):
            round += 1
            store.round = round
            for client in sorted(cohorts[round - 1]):
                put(store, client, round, float(round))
                put(store, client, round, round + 0.5)
            furthest = max(furthest, round)
            saved = round % every == 0
            if saved:
                indexes[round] = dict(store.versions)
                indexes = {r: indexes[r] for r in sorted(indexes)[-2:]}
            if round in pending:
                pending.discard(round)
                again = min(indexes, default=0) if back else max(indexes, default=0)
                store, round = ClientStore(root, indexes.get(again)), again
            elif saved:
                store.collect(sorted(indexes))
                named = {version for index in indexes.values() for version in index.items()}
                found = on_disk(root)
                assert named <= found
                assert all(version > round for _, version in found - named)
                assert round < furthest or found == named
        for client, version in store.versions.items():
            assert ClientStore(root, {client: version}).get(client)["x"].tolist() == [version + 0.5] * 3


def test_a_round_costs_what_it_touches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ClientStore(tmp_path)
    for client in range(50):
        put(store, client, 1, 1.0)
    store.collect([1])
    touched: list[int] = []
    path = store.path
    monkeypatch.setattr(store, "path", lambda client, version: touched.append(client) or path(client, version))
    monkeypatch.setattr(store_module.os, "listdir", None)
    for round in (2, 3, 4):
        put(store, 7, round, float(round))
        store.collect([round - 1, round])
    assert set(touched) == {7}
    assert {version for client, version in on_disk(tmp_path) if client == 7} == {3, 4}


def test_size_without_reading(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    store.round = 1
    store.put(3, {"x": torch.zeros(5), "a long name, for a longer header": torch.zeros(7, dtype=torch.int64)})
    assert store.nbytes(3) == 5 * 4 + 7 * 8
    assert store.nbytes(4) == 0
    with pytest.raises(InputError, match=r"state file '.*000005-000001\.safetensors' cannot be read: No such file"):
        ClientStore(tmp_path, {5: 1}).nbytes(5)


def test_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CACHE_BYTES", 30)  # two entries of three float32 numbers
    monkeypatch.setattr(store_module, "TENSOR_OVERHEAD", 0)
    store = ClientStore(tmp_path)
    for client in range(5):
        put(store, client, 1, float(client))
    assert list(store._cache) == [(3, 1), (4, 1)]
    assert store.get(0)["x"].tolist() == [0.0] * 3, "what left the cache is read from disk"
    assert store._cached_bytes == 24


def test_many_small_entries_do_not_slip_under_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CACHE_BYTES", 2 * (12 + store_module.TENSOR_OVERHEAD))
    store = ClientStore(tmp_path)
    for client in range(5):
        put(store, client, 1, float(client))
    assert list(store._cache) == [(3, 1), (4, 1)]


def test_the_cache_keeps_a_row_and_not_the_stack_it_is_of(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    store.round = 1
    stack = torch.arange(600.0).reshape(200, 3)
    store.put(1, {"x": stack[7]})
    assert store.get(1)["x"].tolist() == [21.0, 22.0, 23.0]
    assert store.get(1)["x"].untyped_storage().nbytes() == 12


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at the mapped files in /proc")
def test_the_cache_keeps_no_file_mapped(tmp_path: Path) -> None:
    """A process can map some 65,000 files, and the cache may hold more clients than that."""
    store = ClientStore(tmp_path)
    put(store, 1, 1, 1.0)
    opened = ClientStore(tmp_path, store.versions)
    tensors = opened.get(1)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert tensors["x"].tolist() == [1.0] * 3


def test_damaged_file_is_named(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    put(store, 1, 1, 1.0)
    path = tmp_path / "000" / "000001-000001.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match=r"000001-000001\.safetensors"):
        ClientStore(tmp_path, {1: 1}).get(1)
