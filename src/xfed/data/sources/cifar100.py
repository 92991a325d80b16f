"""CIFAR-100 (Krizhevsky, 2009), with its fine labels."""

from __future__ import annotations

from types import MappingProxyType

from xfed.data.dataset import Published, dataset
from xfed.data.raw.cifar import Cifar
from xfed.data.raw.download import Download
from xfed.data.raw.source import PAPER_IMAGES


@dataset("cifar100")
class Cifar100(Cifar):
    """60,000 colour images of things and animals, 32 × 32 pixels, 100 classes (Krizhevsky, 2009)."""

    recommended = MappingProxyType({"model": "resnet18", **PAPER_IMAGES})
    forms = ("cifar-100-python", "cifar-100-python.tar.gz")
    downloads = (
        Download("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    )
    train_files = ("train",)
    test_files = ("test",)
    label_key = "fine_labels"
    names_file, names_key = "meta", "fine_label_names"
    published = Published(
        train=50_000,
        test=10_000,
        classes=100,
        input_shape=(3, 32, 32),
        sha256=MappingProxyType(
            {
                "train_pixels": "de64658905c6b161606e3649ddafce7cf86c7634a0cf9116d518e64ef46a33c5",
                "test_pixels": "83c56492b2c11211ad1bb2dbd4f2eef4170a0441e41a41f3039c3144b1f5a511",
                "train_labels": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
                "test_labels": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
            }
        ),
    )
