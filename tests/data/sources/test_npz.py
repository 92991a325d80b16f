"""Users' arrays: every shape that is allowed, and those that are not."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xfed.components import validate
from xfed.data.dataset import Dataset
from xfed.data.sources.npz import Npz
from xfed.errors import InputError

X = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
Y = np.array([0, 2, 1])


def load(folder: Path, **arrays: Any) -> Dataset:
    np.savez(folder / "mine.npz", **arrays)
    return Npz(Npz.Settings(path=folder / "mine.npz")).load()


def test_grey_images(tmp_path: Path) -> None:
    data = load(tmp_path, x=X, y=Y)
    assert torch.equal(data.inputs, torch.from_numpy(X)[:, None])
    assert (data.labels.tolist(), data.classes, data.groups) == ([0, 2, 1], ("0", "1", "2"), None)


def test_channels_first_and_last(tmp_path: Path) -> None:
    colour = np.stack([X, X + 60, X + 120], 1)
    assert torch.equal(load(tmp_path, x=colour, y=Y).inputs, torch.from_numpy(colour))
    assert torch.equal(load(tmp_path, x=colour.transpose(0, 2, 3, 1), y=Y).inputs, torch.from_numpy(colour))


def test_clients_and_class_names(tmp_path: Path) -> None:
    data = load(tmp_path, x=X, y=Y, client=np.array(["zoe", "adam", "zoe"]), classes=np.array(["a", "b", "c", "d"]))
    assert data.classes == ("a", "b", "c", "d")
    assert data.groups is not None
    assert data.groups.tolist() == [1, 0, 1], "in the order of their names"


def test_floating_point_is_taken_as_it_is(tmp_path: Path) -> None:
    data = load(tmp_path, x=X.astype(np.float64) / 7, y=Y)
    assert data.inputs.dtype == torch.float32
    assert torch.equal(data.normalise(data.inputs), data.inputs)


def test_token_ids(tmp_path: Path) -> None:
    data = load(tmp_path, x=np.array([[1, 5], [1, 0], [1, 9]]), y=Y)
    assert (data.kind, data.inputs.dtype, data.inputs.tolist()) == ("text", torch.int32, [[1, 5], [1, 0], [1, 9]])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": X, "y": Y, "client": np.array([1, np.nan, np.nan])}, "has 2 samples whose client is NaN"),
        ({"x": X}, "has no array 'y'; it has: x"),
        ({"a": X}, "has no array 'x'; it has: a"),
        ({"x": X, "y": Y[:2]}, r"has y of int64 and shape \(2,\); allowed: one whole number for each of 3 inputs"),
        ({"x": X, "y": Y / 2}, "has y of float64"),
        ({"x": X, "y": Y - 1}, "has labels from -1 to 1; allowed: 0 to 1"),
        ({"x": X, "y": Y, "classes": np.array(["a", "b"])}, "has labels from 0 to 2; allowed: 0 to 1"),
        ({"x": X, "y": Y, "client": np.zeros(2)}, r"has client of shape \(2,\); allowed: \(3,\), as y"),
        ({"x": X.astype(int), "y": Y}, r"has x of int64 and shape \(3, 1, 4, 5\); allowed: images"),
        ({"x": X[:, 0], "y": Y}, r"has x of uint8 and shape \(3, 5\); allowed: images"),
        ({"x": np.full((3, 2, 2), np.nan), "y": Y}, "has x that is NaN in sample 0, and not finite in 3 of 3 samples"),
        ({"x": np.full((3, 2, 2), 1e39), "y": Y}, "has x that is infinite in sample 0, and not finite in 3 of 3"),
        ({"x": np.zeros((3, 0), int), "y": Y}, r"has x of shape \(3, 0\), which holds no number"),
        ({"x": X, "y": Y, "classes": np.array("abc")}, r"has classes of shape \(\); allowed: a list of names"),
        ({"x": X, "y": Y, "classes": np.array([["a", "b"]] * 3)}, r"has classes of shape \(3, 2\); allowed: a list"),
        ({"x": np.array([[-1], [0], [1]]), "y": Y}, "has token ids from -1 to 1; allowed: 0 and above"),
        ({"x": np.array([{}, {}, {}]), "y": Y}, "is not a whole .npz file of plain arrays: Object arrays cannot be"),
    ],
)
def test_wrong_arrays_are_told(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=rf"'.*mine\.npz' {sentence}") as caught:
        load(tmp_path, **arrays)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\3\4nonsense", b"\x93NUMPY"])
def test_other_files_are_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"is not a whole .npz file of plain arrays"):
        Npz(Npz.Settings(path=tmp_path / "mine.npz")).load()


def test_a_member_that_is_no_array_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("x.npy", b"no array at all")
    with pytest.raises(InputError, match=r"is not a whole \.npz file of plain arrays: 'x' is none"):
        Npz(Npz.Settings(path=tmp_path / "mine.npz")).load()


@pytest.mark.parametrize(("kind", "classes"), [(np.uint8, 256), (np.int8, 128)])
def test_as_many_classes_as_the_labels_have_numbers(tmp_path: Path, kind: type[np.integer[Any]], classes: int) -> None:
    data = load(tmp_path, x=np.zeros((classes, 4, 5), np.uint8), y=np.arange(classes).astype(kind))
    assert len(data.classes) == classes


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"npz.path '.*nowhere' is not a file"):
        Npz(Npz.Settings(path=tmp_path / "nowhere")).load()
    with pytest.raises(InputError, match=r"npz.path is None: give the .npz file with arrays x and y"):
        validate(Npz.Settings, {}, "npz.")
