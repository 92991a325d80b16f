"""Folders of users' images, and what is wrong with some."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.published import jpeg, write_folder
from xfed.components import validate
from xfed.data.dataset import Dataset
from xfed.data.sources.folder import ImageFolder
from xfed.errors import InputError


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two cats and a dog, with what lies about in real folders."""
    files = {
        "dog/1.png": jpeg((9, 0, 0), (5, 4), "PNG"),
        "cat/b.png": jpeg((7, 1, 2), (5, 4), "PNG", "L"),
        "cat/more/c.bmp": jpeg((1, 2, 3), (5, 4), "BMP"),
        "cat/.hidden": b"",
        ".git/config": b"",
        "README": b"",
    }
    return write_folder(tmp_path / "pets", files)


def load(path: Path, size: int | None = None) -> Dataset:
    return ImageFolder(ImageFolder.Settings(path=path, size=size)).load()


def test_one_folder_per_class(images: Path) -> None:
    data = load(images)
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 1]
    assert data.inputs.shape == (3, 3, 4, 5)
    assert data.inputs[1, :, 0, 0].tolist() == [1, 2, 3]
    assert data.inputs[2, :, 3, 4].tolist() == [9, 0, 0]


def test_images_of_several_sizes(images: Path) -> None:
    path = write_folder(images, {"dog/2.png": jpeg((0, 0, 8), (50, 10), "PNG")}) / "dog" / "2.png"
    with pytest.raises(InputError, match=f"image '{path}' has 50 × 10 pixels, the first one 5 × 4; .*set folder.size"):
        load(images)
    data = load(images, size=6)
    assert data.inputs.shape == (4, 3, 6, 6)
    assert data.inputs[3, :, 2, 2].tolist() == [0, 0, 8]


def test_an_empty_class_folder_is_named(images: Path) -> None:
    (images / "bird").mkdir()
    with pytest.raises(InputError, match=f"class folder '{images / 'bird'}' is empty"):
        load(images)


def test_an_image_that_does_not_decode_is_named(images: Path) -> None:
    (images / "cat" / "notes.txt").write_text("meow")
    with pytest.raises(InputError, match=r"image '.*cat/notes\.txt' does not decode: its format is unknown"):
        load(images)


def test_no_folder_and_no_classes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"folder.path '.*nowhere' is not a folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"folder.path '.*empty' holds no folder; allowed: one folder of images per"):
        load(tmp_path / "empty")


def test_the_path_must_be_given() -> None:
    with pytest.raises(InputError, match=r"folder.path is None: give the folder that holds one folder of images per"):
        validate(ImageFolder.Settings, {}, "folder.")
