"""Random images in the shape of CIFAR, as a data set for benchmarks; given to a run as a plug-in."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt

from xfed.components import BaseSettings
from xfed.data.dataset import Dataset, DatasetSource, dataset


@dataset("random-images")
class RandomImages(DatasetSource):
    """Random images 3 × 32 × 32 with random labels."""

    class Settings(BaseSettings):
        samples: PositiveInt = Field(60_000, description="number of images")
        classes: PositiveInt = Field(10, description="number of classes")

    settings: Settings

    def load(self) -> Dataset:
        """Draw the images."""
        s = self.settings
        generator = torch.Generator().manual_seed(1)
        images = torch.randint(0, 256, (s.samples, 3, 32, 32), dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, s.classes, (s.samples,), generator=generator)
        return Dataset(self.name, images, labels, tuple(map(str, range(s.classes))))
