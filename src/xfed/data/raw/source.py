"""What sources have in common that decode raw files, and those whose files anyone can download."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from xfed.data.dataset import Dataset, DatasetSource
from xfed.data.raw.cache import Contents, Origin, open_decoded, write_decoded
from xfed.data.raw.containers import Container, open_container
from xfed.data.raw.download import Download, UnreachableError
from xfed.data.raw.locations import data_roots
from xfed.errors import InputError

PAPER_CLIENTS: Mapping[str, Any] = MappingProxyType({"clients": 100, "sample": 0.1})
PAPER_IMAGES: Mapping[str, Any] = MappingProxyType({**PAPER_CLIENTS, "rounds": 300})


class DecodedSource(DatasetSource):
    """Raw files that are decoded once; later loads map the decoded copy."""

    def find(self) -> Container | None:
        """Find the raw files."""
        raise NotImplementedError

    def instructions(self) -> str:
        """Say what to do when there are no raw files."""
        raise NotImplementedError

    def obtain(self) -> Container:
        """Find the raw files, or say what to do."""
        raw = self.find()
        if raw is None:
            raise InputError(self.instructions())
        return raw

    def decode(self, raw: Container) -> Contents:
        """Read the raw files, published training part first."""
        raise NotImplementedError

    def origin(self, raw: Container) -> Origin:
        """Name the decoded copy that belongs to these raw files."""
        return Origin.of(self.name, raw, self.settings.model_dump(mode="json"))

    def load(self) -> Dataset:
        """Map the decoded copy; decode first where there is none."""
        raw = self.obtain()
        origin = self.origin(raw)
        if (origin.folder() / "meta.json").is_file():
            try:
                return open_decoded(origin.folder())
            except InputError:
                pass  # damaged: it is only a copy, and is made again
        return write_decoded(origin, self.decode(raw))


class PublishedSource(DecodedSource):
    """A public data set, in any form in which it is published; downloaded where it is not found."""

    forms: ClassVar[tuple[str, ...]]
    """Folders and archives it comes as, relative to a data root; the first is the unpacked folder."""
    downloads: ClassVar[tuple[Download, ...]]
    """Its files on the internet: one archive, or what belongs into the unpacked folder."""
    system: ClassVar[tuple[Path, ...]] = ()
    """Folders outside the data roots where an operating system's package puts it."""

    def find(self) -> Container | None:
        """Look through the data roots, then through the system's folders."""
        places = [root / form for root in data_roots() for form in self.forms]
        for path in (*places, *self.system):
            if path.is_file() or (path.is_dir() and any(path.iterdir())):
                return open_container(path, self.forms)
        return None

    def obtain(self) -> Container:
        """Find the raw files or download them."""
        raw = self.find()
        if raw is None:
            self.download(data_roots()[0])
            raw = self.find()
        assert raw is not None
        return raw

    def download(self, root: Path) -> None:
        """Download all files into a data root; they show under their names only when all are there."""
        try:
            if len(self.downloads) == 1:
                self.downloads[0].fetch(root / self.downloads[0].name)
                return
            partial = root / f".{self.forms[0]}.partial"
            for file in self.downloads:
                if not (partial / file.name).is_file():
                    file.fetch(partial / file.name)
            partial.rename(root / self.forms[0])
        except UnreachableError as error:
            raise InputError(
                f"data set {self.name!r} was not found and could not be downloaded ({error}); {self.instructions()}"
            ) from None
        except OSError as error:
            raise InputError(f"data set {self.name!r} cannot be stored in {str(root)!r}: {error.strerror}") from None

    def instructions(self) -> str:
        """Say which file to put where."""
        files = ", ".join(file.name for file in self.downloads)
        root = data_roots()[0]
        if len(self.downloads) > 1:
            return f"put {files} into '{root / self.forms[0]}'"
        return f"put {files} or its unpacked folder {self.forms[0]} into '{root}'"
