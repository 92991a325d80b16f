"""The picture of a partition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from xfed.data.dealing.partition import Partition, Split
from xfed.errors import InputError
from xfed.report.partition import draw_partition

LABELS = np.array([0, 1, 1, 2, 2, 2])
EMPTY = np.array([], dtype=np.int64)
PARTITION = Partition.of(
    (Split(np.array([0, 3]), np.array([4]), np.array([1])), Split(np.array([5]), EMPTY, np.array([2])))
)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_picture_is_drawn(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new" / f"partition.{kind}"
    draw_partition(PARTITION, LABELS, ["a", "b", "c", "d"], path)
    if kind == "png":
        with Image.open(path) as image:
            assert image.size == (900, 600)
            assert len(image.convert("RGB").getcolors(1 << 20) or []) > 10
    else:
        assert path.read_bytes().startswith(b"%PDF" if kind == "pdf" else b"<?xml")


def test_many_clients_and_classes(tmp_path: Path) -> None:
    labels = np.arange(2000) % 100
    splits = tuple(Split(np.arange(n * 10, n * 10 + 10), EMPTY, EMPTY) for n in range(200))
    draw_partition(Partition.of(splits), labels, [str(n) for n in range(100)], tmp_path / "many.png")
    assert (tmp_path / "many.png").stat().st_size > 10_000


def test_an_unknown_ending_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"figure '.*x\.docx' has no known ending; allowed: .*pdf.*png"):
        draw_partition(PARTITION, LABELS, ["a", "b", "c", "d"], tmp_path / "x.docx")
