"""Fashion-MNIST (Xiao et al., 2017)."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed.data.dataset import Published, dataset
from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import LARGEST, Container
from xfed.data.raw.download import Download
from xfed.data.raw.reasons import reason
from xfed.data.raw.source import PAPER_CLIENTS, PublishedSource
from xfed.errors import InputError

ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
UNSIGNED_BYTES = 0x08
CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


@dataset("fashion-mnist")
class FashionMnist(PublishedSource):
    """70,000 grey images of clothes, 28 × 28 pixels, 10 classes (Xiao et al., 2017)."""

    recommended = MappingProxyType({"model": "convnet", **PAPER_CLIENTS})
    forms = ("fashion-mnist", "FashionMNIST/raw")
    system = (Path("/usr/share/datasets/fashion-mnist"),)
    downloads = (
        Download(f"{ADDRESS}train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        Download(f"{ADDRESS}train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        Download(f"{ADDRESS}t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        Download(f"{ADDRESS}t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    )
    published = Published(
        train=60_000,
        test=10_000,
        classes=10,
        input_shape=(1, 28, 28),
        sha256=MappingProxyType(
            {
                "train_pixels": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
                "test_pixels": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
                "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
                "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
            }
        ),
    )

    def decode(self, raw: Container) -> Contents:
        """Read the four files."""
        files = [file.name for file in self.downloads]
        read = dict(raw.read(files))
        arrays = [_idx(read[name], raw.where(name), 3 if "images" in name else 1) for name in files]
        images, labels = arrays[0::2], arrays[1::2]
        for name, pictures, answers in zip(files[1::2], images, labels, strict=True):
            if len(answers) != len(pictures) or answers.max(initial=0) >= len(CLASSES):
                raise InputError(
                    f"file {raw.where(name)!r} has {len(answers)} labels up to {answers.max(initial=0)} "
                    f"for {len(pictures)} images; allowed: one of 0 to {len(CLASSES) - 1} for each image"
                )
        return Contents(
            shape=(sum(map(len, images)), 1, *images[0].shape[1:]),
            blocks=[pictures[:, None] for pictures in images],
            labels=np.concatenate(labels),
            classes=CLASSES,
            train=len(images[0]),
        )


def _idx(content: bytes, where: str, dimensions: int) -> NDArray[Any]:
    """Read an IDX file: zero, zero, type, number of dimensions, sizes, then the values."""
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            magic, *shape = struct.unpack(f">{1 + dimensions}I", stream.read(4 * (1 + dimensions)))
            if magic != UNSIGNED_BYTES << 8 | dimensions:
                raise InputError(f"file {where!r} is not an IDX file of bytes in {dimensions} dimensions")
            size = math.prod(shape)
            if size > LARGEST:
                raise InputError(f"file {where!r} claims to hold {size:,} bytes; allowed: up to {LARGEST:,}")
            return np.frombuffer(stream.read(size + 1), dtype=np.uint8).reshape(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise InputError(f"file {where!r} is damaged or cut short ({reason(error)}); fetch it again") from None
