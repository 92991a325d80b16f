"""A partition in memory and on disk is the same one, for every process that maps it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import xfed.data.dealing.partition as module
from xfed.data.dealing.partition import SPLITS, Partition, Split, open_partition
from xfed.errors import InputError
from xfed.files import read_tensors, write_tensors

Lists = list[tuple[list[int], list[int], list[int]]]
LISTS: Lists = [([0, 3], [4], [1]), ([5], [], [2]), ([], [], [7, 6, 8])]


def build(lists: Lists, overlapping: bool = False) -> Partition:
    return Partition.of((Split(*(np.array(part, dtype=np.int64) for part in client)) for client in lists), overlapping)


def lists_of(partition: Partition) -> Lists:
    return [(split.train.tolist(), split.calibration.tolist(), split.test.tolist()) for split in partition]


indices = st.lists(st.integers(0, 2**31 - 1), max_size=5)


@given(lists=st.lists(st.tuples(indices, indices, indices), max_size=8))
def test_what_goes_in_comes_out(lists: Lists) -> None:
    partition = build(lists)
    assert len(partition) == len(lists)
    assert lists_of(partition) == lists
    for number, part in enumerate(SPLITS):
        assert partition.sizes(part).tolist() == [len(client[number]) for client in lists]


def test_one_client() -> None:
    partition = build(LISTS)
    assert partition[0].train.dtype == np.int64, "as torch takes indices"
    assert partition[2].test.tolist() == [7, 6, 8]
    for nobody in (3, -1):
        with pytest.raises(IndexError, match="there are 3"):
            partition[nobody]


def test_class_counts_of_all_parts_or_some() -> None:
    labels = np.array([0, 1, 1, 2, 2, 2, 0, 3, 3])
    partition = build(LISTS)
    assert partition.class_counts(labels, 4).tolist() == [[1, 1, 2, 0], [0, 1, 1, 0], [1, 0, 0, 2]]
    assert partition.class_counts(labels, 4, ("train", "calibration")).tolist() == [[1, 0, 2, 0], [0, 0, 1, 0], [0] * 4]
    assert partition.class_counts(labels, 4, ("test",)).tolist() == [[0, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 2]]


def test_blocks_are_the_same_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_TOGETHER", 2)
    labels = np.array([0, 1, 1, 2, 2, 2, 0, 3, 3])
    partition = build(LISTS).save(tmp_path / "p.safetensors")
    blocks = list(partition.blocks())
    assert [lists_of(block) for block in blocks] == [LISTS[:2], LISTS[2:]]
    counts = np.concatenate([block.class_counts(labels, 4) for block in blocks])
    assert counts.tolist() == partition.class_counts(labels, 4).tolist()
    assert lists_of(pickle.loads(pickle.dumps(blocks[1]))) == LISTS[2:], "a block is not its file"
    assert lists_of(blocks[1].save(tmp_path / "block.safetensors")) == LISTS[2:]


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_saved_partition_is_the_same_and_travels_as_its_file(tmp_path: Path, overlapping: bool) -> None:
    many = build(LISTS * 5_000, overlapping)
    saved = many.save(tmp_path / "p.safetensors")
    for partition in (saved, open_partition(tmp_path / "p.safetensors"), pickle.loads(pickle.dumps(saved))):
        assert np.array_equal(partition.indices, many.indices)
        assert np.array_equal(partition.bounds, many.bounds)
        assert partition.overlapping == overlapping
    assert len(pickle.dumps(saved)) < 1_000, "a worker maps the file itself"
    assert lists_of(pickle.loads(pickle.dumps(build(LISTS, overlapping)))) == LISTS, "without a file it goes whole"


def test_workers_map_the_file_wherever_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(build(LISTS).save(Path("p.safetensors")))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert lists_of(pickle.loads(sent)) == LISTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bounds", torch.tensor([0, 2, 3])),
        ("bounds", torch.tensor([0, 2, 3, 9])),
        ("bounds", torch.tensor([0, 3, 2, 4])),
        ("bounds", torch.tensor([1, 2, 3, 4])),
        ("bounds", torch.tensor([0.0, 2.0, 3.0, 4.0])),
        ("indices", torch.arange(4)),
    ],
)
def test_a_file_that_does_not_fit_together_is_refused(tmp_path: Path, name: str, value: torch.Tensor) -> None:
    path = tmp_path / "p.safetensors"
    build(LISTS[:1]).save(path)
    write_tensors(path, {**read_tensors(path), name: value})
    with pytest.raises(InputError, match=r"partition file '.*p\.safetensors' is damaged"):
        open_partition(path)


def test_a_file_that_is_cut_or_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    build(LISTS).save(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="is damaged"):
        open_partition(path)
    with pytest.raises(InputError, match=r"partition file '.*nowhere\.safetensors' does not exist"):
        open_partition(tmp_path / "nowhere.safetensors")
