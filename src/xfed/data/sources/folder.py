"""The user's own images: one folder per class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, field_validator

from xfed.components import BaseSettings
from xfed.data.dataset import dataset
from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import Container, Folder
from xfed.data.raw.images import decode_rgb
from xfed.data.raw.source import DecodedSource
from xfed.errors import InputError


@dataset("folder")
class ImageFolder(DecodedSource):
    """Your images: a folder with one folder of images per class, named like the class.

    Every file below a class folder is an image of that class, in any format Pillow reads, and becomes RGB. Hidden
    files and files beside the class folders do not count.
    """

    class Settings(BaseSettings):
        path: Path = Field(None, validate_default=True, description="folder that holds one folder of images per class")
        size: PositiveInt | None = Field(
            None, description="make every image this many pixels wide and high; without it they must be of one size"
        )

        @field_validator("path", mode="before")
        @classmethod
        def _given(cls, path: Any) -> Any:
            if path is None:
                raise ValueError("give the folder that holds one folder of images per class")
            return path

    settings: Settings

    def find(self) -> Container | None:
        """Find the folder."""
        return Folder(self.settings.path) if self.settings.path.is_dir() else None

    def instructions(self) -> str:
        """Name the folder that is not there."""
        return f"folder.path {str(self.settings.path)!r} is not a folder"

    def decode(self, raw: Container) -> Contents:
        """Read all images, class by class."""
        classes = sorted(p.name for p in raw.path.iterdir() if p.is_dir() and not p.name.startswith("."))
        if not classes:
            raise InputError(f"folder.path {str(raw.path)!r} holds no folder; allowed: one folder of images per class")
        files = [name for name in raw.names() if "/" in name]
        of_class = [name.split("/")[0] for name in files]
        for name in classes:
            if name not in of_class:
                raise InputError(f"class folder {raw.where(name)!r} is empty")
        number = {name: index for index, name in enumerate(classes)}
        first = decode_rgb(raw.get(files[0]), raw.where(files[0]), self.settings.size)
        return Contents(
            shape=(len(files), *first.shape),
            blocks=self._images(raw, files, first.shape),
            labels=np.asarray([number[name] for name in of_class], dtype=np.int64),
            classes=tuple(classes),
        )

    def _images(self, raw: Container, files: Sequence[str], shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
        for name, content in raw.read(files):
            image = decode_rgb(content, raw.where(name), self.settings.size)
            if image.shape != shape:
                raise InputError(
                    f"image {raw.where(name)!r} has {image.shape[2]} × {image.shape[1]} pixels, the first one "
                    f"{shape[2]} × {shape[1]}; make them equal or set folder.size"
                )
            yield image[None]
