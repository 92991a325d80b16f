"""CIFAR-10 (Krizhevsky, 2009)."""

from __future__ import annotations

from types import MappingProxyType

from xfed.data.dataset import Published, dataset
from xfed.data.raw.cifar import Cifar
from xfed.data.raw.download import Download
from xfed.data.raw.source import PAPER_IMAGES


@dataset("cifar10")
class Cifar10(Cifar):
    """60,000 colour images of things and animals, 32 × 32 pixels, 10 classes (Krizhevsky, 2009)."""

    recommended = MappingProxyType({"model": "convnet", **PAPER_IMAGES})
    forms = ("cifar-10-batches-py", "cifar-10-python.tar.gz")
    downloads = (
        Download("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    )
    train_files = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_files = ("test_batch",)
    label_key = "labels"
    names_file, names_key = "batches.meta", "label_names"
    published = Published(
        train=50_000,
        test=10_000,
        classes=10,
        input_shape=(3, 32, 32),
        sha256=MappingProxyType(
            {
                "train_pixels": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
                "test_pixels": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
                "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
                "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            }
        ),
    )
