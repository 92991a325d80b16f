"""Decoded copies: equal to what was read, made anew when that changes, never half there."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xfed.data.dataset import Dataset
from xfed.data.raw.cache import Contents, Origin, open_decoded, read_meta, write_decoded
from xfed.data.raw.containers import Container
from xfed.data.sources.npz import Npz
from xfed.errors import InputError

VALUES = np.arange(3 * 1 * 2 * 2, dtype=np.uint8).reshape(3, 1, 2, 2)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """Some raw file."""
    (tmp_path / "raw").write_bytes(b"raw")
    return Origin.of("some", Container(tmp_path / "raw"), {"size": 2})


def contents(**changes: Any) -> Contents:
    """Three images in two blocks."""
    values: dict[str, Any] = {"blocks": [VALUES[:2], VALUES[2:]], "labels": np.array([0, 1, 1]), "classes": ("a", "b")}
    return Contents(**{"shape": VALUES.shape, **values, **changes})


def test_a_copy_is_what_was_written(origin: Origin, cache: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = write_decoded(origin, contents(train=2, groups=np.array([5, 5, 7]), scale=3.0))
    assert data.name == "some"
    assert torch.equal(data.inputs, torch.from_numpy(VALUES.copy()))
    assert (data.labels.dtype, data.labels.tolist()) == (torch.int64, [0, 1, 1])
    assert data.groups is not None
    assert data.groups.tolist() == [5, 5, 7]
    assert (data.classes, data.scale, data.mean, data.std, data.kind) == (("a", "b"), 3.0, 0.5, 0.5, "image")
    assert origin.folder().parent == cache / "decoded"
    assert sorted(p.name for p in origin.folder().iterdir()) == ["groups.npy", "inputs.npy", "labels.npy", "meta.json"]
    meta = read_meta(origin.folder())
    assert (meta.samples, meta.train, meta.origin.files, meta.origin.bytes) == (3, 2, 1, 3)
    assert meta.sha256 == data.compute_checksum()


def test_text(origin: Origin) -> None:
    rows = np.array([[1, 3], [1, 0]], dtype=np.int32)
    data = write_decoded(
        origin,
        Contents((2, 2), [rows], np.array([0, 0]), ("a",), dtype="int32", kind="text", vocabulary=("x", "y", "z", "w")),
    )
    assert (data.inputs.dtype, data.inputs.tolist()) == (torch.int32, rows.tolist())
    assert (data.kind, data.vocabulary) == ("text", ("x", "y", "z", "w"))


def test_a_mapped_data_set_travels_as_its_place(origin: Origin) -> None:
    data = write_decoded(origin, contents())
    assert data.shared() is data
    sent = pickle.dumps(data)
    assert len(sent) < 1000
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_look, (data,)) == (VALUES.tolist(), data.checksum(), True)
    assert torch.equal(pickle.loads(sent).inputs, data.inputs)


def _look(data: Dataset) -> tuple[list[Any], str, bool]:
    return data.inputs.tolist(), data.checksum(), data.reopen is not None


def test_a_changed_data_set_travels_as_itself(origin: Origin) -> None:
    changed = replace(write_decoded(origin, contents()), classes=("c", "d"))
    assert changed.reopen is None
    assert pickle.loads(pickle.dumps(changed)).classes == ("c", "d")
    assert changed.checksum() != open_decoded(origin.folder()).checksum()


def test_the_checksum_is_not_computed_again(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum = write_decoded(origin, contents()).checksum()
    monkeypatch.setattr(Dataset, "compute_checksum", lambda self: pytest.fail("read everything"))
    assert open_decoded(origin.folder()).checksum() == checksum


def test_writing_into_a_mapped_tensor_leaves_the_file_alone(origin: Origin) -> None:
    data = write_decoded(origin, contents())
    data.inputs[0] = 99
    assert torch.equal(open_decoded(origin.folder()).inputs, torch.from_numpy(VALUES.copy()))


def test_changed_raw_files_are_decoded_again_and_the_old_copy_goes(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mine.npz"
    for number in (1, 2):
        np.savez(path, x=np.full((4, 2, 2), number, dtype=np.uint8), y=np.zeros(4, dtype=int), extra=np.zeros(number))
        assert Npz(Npz.Settings(path=path)).load().inputs.unique().tolist() == [number]
    assert len(list((cache / "decoded").iterdir())) == 1


@pytest.mark.parametrize("harm", ["cut", "swap", "meta", "lost"])
def test_a_damaged_copy_is_told_and_made_again(tmp_path: Path, cache: Path, harm: str) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.full((4, 2, 2), 7, dtype=np.uint8), y=np.zeros(4, dtype=int))
    source = Npz(Npz.Settings(path=path))
    source.load()
    (folder,) = (cache / "decoded").iterdir()
    if harm == "cut":
        (folder / "inputs.npy").write_bytes((folder / "inputs.npy").read_bytes()[:-3])
    elif harm == "swap":
        np.save(folder / "labels.npy", np.zeros(3, dtype=np.int64))
    elif harm == "meta":
        (folder / "meta.json").write_text('{"samples": 4}')
    else:
        (folder / "inputs.npy").unlink()
    with pytest.raises(InputError, match=r"decoded copy .* is damaged; delete the folder"):
        open_decoded(folder)
    assert source.load().inputs.unique().tolist() == [7]


def test_a_failed_decoding_leaves_no_copy(origin: Origin) -> None:
    def broken() -> Any:
        yield VALUES[:2]
        raise InputError("image 'x' does not decode")

    with pytest.raises(InputError, match="does not decode"):
        write_decoded(origin, contents(blocks=broken()))
    with pytest.raises(InputError, match="labels from 0 to 2"):
        write_decoded(origin, contents(labels=np.array([0, 1, 2])))
    assert not (origin.folder() / "meta.json").exists()
    assert not [path for path in origin.folder().iterdir() if path.name.startswith(".")]


def test_a_cache_that_cannot_be_written_is_told(origin: Origin, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("in the way")
    with pytest.raises(InputError, match=r"cannot be written: .*; XDG_CACHE_HOME can name a folder with more room"):
        write_decoded(origin, contents())
