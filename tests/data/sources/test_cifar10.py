"""CIFAR-10 from its folder and its archive, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.published import (
    cifar10_files,
    cifar_batch,
    malicious,
    python2_pickle,
    write_folder,
    write_tar,
)
from xfed.data.sources.cifar10 import Cifar10
from xfed.errors import InputError


@pytest.fixture
def folder(root: Path) -> Path:
    """The unpacked form."""
    return write_folder(root / "cifar-10-batches-py", cifar10_files())


def check(source: Cifar10) -> None:
    data = source.load()
    assert data.inputs.shape == (12, 3, 32, 32)
    assert data.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1], "training batches in order, then the test one"
    assert data.inputs[7, :, 0, 0].tolist() == [7, 8, 9], "red, green, blue"
    assert data.inputs[7, :, 31, 31].tolist() == [7, 8, 255], "rows of the image are rows of pixels"
    assert data.classes[3] == "class 3"
    assert (data.kind, data.scale, data.mean, data.std) == ("image", 255.0, 0.5, 0.5)


def test_unpacked(folder: Path) -> None:
    check(Cifar10())


def test_archive_whose_members_are_in_no_order(root: Path) -> None:
    files = cifar10_files()
    names = ["data_batch_4", "readme.html", "test_batch", "data_batch_3", "batches.meta", "data_batch_2"]
    shuffled = {name: files.get(name, b"") for name in [*names, "data_batch_5", "data_batch_1"]}
    write_tar(root / "cifar-10-python.tar.gz", "cifar-10-batches-py", shuffled)
    check(Cifar10())


def test_in_the_cache_folder(cache: Path) -> None:
    write_folder(cache / "cifar-10-batches-py", cifar10_files())
    check(Cifar10())


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("data_batch_3", None, "is incomplete: it has no data_batch_3"),
        (
            "data_batch_2",
            cifar10_files()["data_batch_2"][:500],
            "data_batch_2' cannot be used: expected 6144 bytes in a string4, but only 359 remain",
        ),
        (
            "test_batch",
            python2_pickle(cifar_batch(2, "labels", [0, 10])),
            "test_batch' has labels from 0 to 10; allowed: 0 to 9",
        ),
        (
            "test_batch",
            python2_pickle(cifar_batch(2, "labels", [0])),
            "has no list 'labels' of one label for each image",
        ),
        ("test_batch", python2_pickle({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}), "rows of 3072 pixels"),
        ("batches.meta", python2_pickle({"names": []}), "batches.meta' has no list of class names 'label_names'"),
    ],
)
def test_bad_files_are_named(folder: Path, name: str, content: bytes | None, sentence: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        Cifar10().load()
    assert str(folder) in str(caught.value)


def test_a_pickle_that_tries_to_run_code(folder: Path, tmp_path: Path) -> None:
    (folder / "data_batch_1").write_bytes(malicious(tmp_path / "ran"))
    with pytest.raises(InputError, match=r"data_batch_1' cannot be used: it asks for "):
        Cifar10().load()
    assert not (tmp_path / "ran").exists()


def test_a_truncated_archive(root: Path) -> None:
    path = write_tar(root / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_files())
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"archive '.*cifar-10-python\.tar\.gz' is damaged or cut short"):
        Cifar10().load()
