"""Fashion-MNIST from its files, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.published import fashion_mnist_files, idx, write_folder
from xfed.data.sources.fashion_mnist import FashionMnist
from xfed.errors import InputError

TEST_LABELS = "t10k-labels-idx1-ubyte.gz"


@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
def test_train_first(root: Path, folder: str) -> None:
    write_folder(root / folder, fashion_mnist_files())
    data = FashionMnist().load()
    assert data.inputs.shape == (6, 1, 28, 28)
    assert data.inputs.flatten(1).unique(dim=1).flatten().tolist() == data.labels.tolist() == list(range(6))
    assert data.classes[9] == "Ankle boot"


def test_the_systems_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FashionMnist, "system", (write_folder(tmp_path / "share", fashion_mnist_files()),))
    assert len(FashionMnist().load()) == 6


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (fashion_mnist_files()[TEST_LABELS][:-9], "is damaged or cut short"),
        (b"no gzip", "is damaged or cut short"),
        (idx(np.array([[1, 2]], np.uint8)), "is not an IDX file of bytes in 1 dimensions"),
        (idx(np.array([1], np.uint8)), "has 1 labels up to 1 for 2 images; allowed: one of 0 to 9 for each image"),
        (idx(np.array([1, 10], np.uint8)), "has 2 labels up to 10 for 2 images; allowed: one of 0 to 9"),
    ],
)
def test_bad_files_are_named(root: Path, content: bytes, sentence: str) -> None:
    write_folder(root / "fashion-mnist", {**fashion_mnist_files(), TEST_LABELS: content})
    with pytest.raises(InputError, match=f"file '.*{TEST_LABELS}' {sentence}"):
        FashionMnist().load()
