"""CIFAR-100: fine labels, training samples first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.published import cifar100_files, write_folder, write_tar
from xfed.data.sources.cifar100 import Cifar100


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_fine_labels_train_first(root: Path, form: str) -> None:
    if form == "folder":
        write_folder(root / "cifar-100-python", cifar100_files())
    else:
        write_tar(root / "cifar-100-python.tar.gz", "cifar-100-python", dict(reversed(cifar100_files().items())))
    data = Cifar100().load()
    assert data.inputs.shape == (8, 3, 32, 32)
    assert data.labels.tolist() == list(range(8))
    assert data.inputs[6, :, 3, 4].tolist() == [6, 7, 8]
    assert len(data.classes) == 100
    assert data.classes[99] == "fine 99"
