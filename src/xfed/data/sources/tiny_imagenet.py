"""Tiny ImageNet: 200 classes of ImageNet at 64 × 64 pixels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed.data.dataset import Published, dataset
from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import Container
from xfed.data.raw.download import Download
from xfed.data.raw.images import decode_rgb
from xfed.data.raw.source import PAPER_IMAGES, PublishedSource
from xfed.errors import InputError

SHAPE = (3, 64, 64)
ANNOTATIONS = "val/val_annotations.txt"


@dataset("tiny-imagenet")
class TinyImageNet(PublishedSource):
    """110,000 colour photographs, 64 × 64 pixels, 200 classes of ImageNet (train and validation parts).

    Validation labels come from the annotation file: all validation images lie in one folder, which is no class.
    The published test part has no labels and is not used.
    """

    recommended = MappingProxyType({"model": "resnet18", **PAPER_IMAGES})
    forms = ("tiny-imagenet-200", "tiny-imagenet-200.zip")
    downloads = (Download("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),)
    published = Published(train=100_000, test=10_000, classes=200, input_shape=(3, 64, 64))

    def decode(self, raw: Container) -> Contents:
        """Read the training images class by class, then the validation images as annotated."""
        lists = {name: content.decode("utf-8", "replace") for name, content in raw.read(("wnids.txt", ANNOTATIONS))}
        names = raw.names()
        classes = sorted(lists["wnids.txt"].split())
        number = {wnid: index for index, wnid in enumerate(classes)}
        train = _training_images(names, classes, raw)
        validation = _validation_images(lists[ANNOTATIONS], number, raw)
        files = [name for wnid in classes for name in train[wnid]] + [name for name, _ in validation]
        labels = [number[wnid] for wnid in classes for _ in train[wnid]] + [label for _, label in validation]
        words = _words(raw.get("words.txt").decode("utf-8", "replace")) if "words.txt" in names else {}
        return Contents(
            shape=(len(files), *SHAPE),
            blocks=_images(raw, files),
            labels=np.asarray(labels, dtype=np.int64),
            classes=tuple(words.get(wnid, wnid) for wnid in classes),
            train=len(files) - len(validation),
        )


def _training_images(names: Sequence[str], classes: Sequence[str], raw: Container) -> Mapping[str, Sequence[str]]:
    found = defaultdict(list)
    for name in names:
        parts = name.split("/")
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            found[parts[1]].append(name)
    for wnid in classes:
        if not found[wnid]:
            raise InputError(f"{raw.where(f'train/{wnid}/images')!r} has no images of class {wnid}")
    return found


def _validation_images(annotations: str, number: Mapping[str, int], raw: Container) -> list[tuple[str, int]]:
    images = []
    for line, text in enumerate(annotations.splitlines(), 1):
        fields = text.split("\t")
        if len(fields) < 2 or fields[1] not in number:
            raise InputError(
                f"line {line} of {raw.where(ANNOTATIONS)!r} is {text!r:.60}; "
                "allowed: a file name, a class of wnids.txt and a box, with tabs between them"
            )
        images.append((f"val/images/{fields[0]}", number[fields[1]]))
    return images


def _words(text: str) -> dict[str, str]:
    pairs = (line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    return {wnid: name.split(",")[0].strip() for wnid, name in pairs}


def _images(raw: Container, files: Sequence[str]) -> Iterator[NDArray[Any]]:
    for name, content in raw.read(files):
        image = decode_rgb(content, raw.where(name))
        if image.shape != SHAPE:
            raise InputError(
                f"image {raw.where(name)!r} has {image.shape[2]} × {image.shape[1]} pixels; allowed: 64 × 64"
            )
        yield image[None]
