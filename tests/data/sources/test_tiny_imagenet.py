"""Tiny ImageNet: validation labels by their annotations, and damaged copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.published import jpeg, tiny_imagenet_files, write_folder, write_zip
from xfed.data.sources.tiny_imagenet import TinyImageNet
from xfed.errors import InputError


@pytest.fixture
def folder(root: Path) -> Path:
    """The unpacked form."""
    return write_folder(root / "tiny-imagenet-200", tiny_imagenet_files())


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_train_by_folder_and_validation_by_annotation(root: Path, form: str) -> None:
    if form == "folder":
        write_folder(root / "tiny-imagenet-200", tiny_imagenet_files())
    else:
        write_zip(root / "tiny-imagenet-200.zip", "tiny-imagenet-200", tiny_imagenet_files())
    data = TinyImageNet().load()
    assert data.inputs.shape == (9, 3, 64, 64)
    assert data.classes == ("goldfish", "bullfrog", "n03000000"), "sorted by id; by name where words.txt has one"
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2, 2, 0, 0], "validation: third, first, first class"
    middle = data.inputs[:, :, 32, 32].int()
    assert (middle[:6, 0] - 80 * data.labels[:6]).abs().max() <= 3, "JPEG may be off by a little"
    assert (middle[6:8, 0] - 10 * middle.new_tensor([0, 1])).abs().max() <= 3
    assert middle[8].tolist() == [middle[8, 0]] * 3, "grey becomes RGB"


def test_without_words(folder: Path) -> None:
    (folder / "words.txt").unlink()
    assert TinyImageNet().load().classes == ("n01000000", "n02000000", "n03000000")


def test_a_broken_image_is_named(folder: Path) -> None:
    path = folder / "train/n02000000/images/n02000000_1.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=f"image '{path}' does not decode: "):
        TinyImageNet().load()


def test_an_image_of_another_size_is_named(folder: Path) -> None:
    (folder / "val/images/val_1.JPEG").write_bytes(jpeg((1, 2, 3), (32, 64)))
    with pytest.raises(InputError, match=r"val_1\.JPEG' has 32 × 64 pixels; allowed: 64 × 64"):
        TinyImageNet().load()


def test_an_empty_class_is_named(folder: Path) -> None:
    for path in (folder / "train/n02000000/images").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="train/n02000000/images' has no images of class n02000000"):
        TinyImageNet().load()


def test_wrong_annotations_are_named(folder: Path) -> None:
    annotations = folder / "val/val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn03000000\t0\t0\t1\t1\nval_1.JPEG\tn09999999\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"line 2 of '.*val_annotations\.txt' is 'val_1\.JPEG"):
        TinyImageNet().load()
    annotations.write_text("val_77.JPEG\tn03000000\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"is incomplete: it has no val/images/val_77\.JPEG"):
        TinyImageNet().load()
