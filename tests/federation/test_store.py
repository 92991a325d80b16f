"""Client states on disk: versions, the bounded cache, and what gets deleted when."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import xfed.federation.store as store_module
from tests.runs import files
from xfed import InputError
from xfed.federation.store import ClientStore


def put(store: ClientStore, client: int, round: int, value: float) -> None:
    store.round = round
    store.put(client, {"x": torch.full((3,), value)})


def test_untouched_clients_have_nothing_and_no_files(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    put(store, 99_999, 1, 1.0)
    assert store.get(5) == {}
    assert store.known() == [99_999]
    assert files(tmp_path) == {"099999/000001.safetensors"}


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
    indexes = []
    for round in (1, 2, 3):
        put(store, 1, round, float(round))
        indexes.append(dict(store.versions))
        store.collect(indexes[-2:])
    assert files(tmp_path) == {"000001/000002.safetensors", "000001/000003.safetensors"}
    store.collect(indexes[-1:])
    assert files(tmp_path) == {"000001/000003.safetensors"}


def test_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "CACHE_BYTES", 30)  # two entries of three float32 numbers
    store = ClientStore(tmp_path)
    for client in range(5):
        put(store, client, 1, float(client))
    assert list(store._cache) == [(3, 1), (4, 1)]
    assert store.get(0)["x"].tolist() == [0.0] * 3, "what left the cache is read from disk"
    assert store._cached_bytes == 24


def test_damaged_file_is_named(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    put(store, 1, 1, 1.0)
    path = tmp_path / "000001" / "000001.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match=r"000001\.safetensors"):
        ClientStore(tmp_path, {1: 1}).get(1)
