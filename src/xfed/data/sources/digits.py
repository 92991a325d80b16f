"""The embedded data set: it ships inside the wheel of a dependency, so nothing is downloaded."""

from __future__ import annotations

from types import MappingProxyType

import torch

from xfed.data.dataset import Dataset, DatasetSource, Published, dataset


@dataset("digits")
class Digits(DatasetSource):
    """1,797 handwritten digits, 8 × 8 pixels, 10 classes (scikit-learn); needs no download."""

    recommended = MappingProxyType({"batch_size": 16, "lr": 0.05, "convnet": {"width": 32}})
    published = Published(train=1_797, test=0, classes=10, input_shape=(1, 8, 8))

    def load(self) -> Dataset:
        """Read the images (grey values 0 to 16) from scikit-learn."""
        from sklearn.datasets import load_digits  # takes a second, which workers need not spend

        images, labels = load_digits(return_X_y=True)
        return Dataset(
            name="digits",
            inputs=torch.from_numpy(images.astype("uint8")).reshape(-1, 1, 8, 8),
            labels=torch.from_numpy(labels.astype("int64")),
            classes=tuple(str(digit) for digit in range(10)),
            scale=16.0,
        )
