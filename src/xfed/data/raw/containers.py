"""Raw files under one name, whether unpacked in a folder or inside an archive.

Archives are read in place and never unpacked, so a member cannot be written anywhere; one whose name points
outside the archive's own folder is refused all the same.
"""

from __future__ import annotations

import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from xfed.data.raw.reasons import reason
from xfed.errors import InputError

LARGEST = 2**30
"""Bytes of one file in an archive: more than any published set has; what claims more is a bomb."""
UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)
"""What Python's readers of archives raise at what is none, or no longer one."""

Signature = list[tuple[str, int, int]]
"""Name, size and time of change (ns) of each file."""


class Container:
    """Named files; names are relative, with forward slashes. This base class is one plain file."""

    def __init__(self, path: Path, tops: Collection[str] = ()) -> None:
        self.path, self.tops = path, frozenset(tops)

    def names(self) -> list[str]:
        """List the files, sorted."""
        return [self.path.name]

    def read(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Give the content of each of these files, in whatever order is quickest."""
        for _ in names:
            yield self.path.name, _bytes(self.path)

    def get(self, name: str) -> bytes:
        """Give the content of one file."""
        return next(content for _, content in self.read([name]))

    def where(self, name: str) -> str:
        """Name a file for people."""
        return f"{self.path}: {name}"

    def signature(self) -> Signature:
        """Tell apart other files and changed files, without reading them."""
        entry = self.path.stat()
        return [(self.path.name, entry.st_size, entry.st_mtime_ns)]

    def _lacks(self, names: Collection[str]) -> InputError:
        return InputError(f"{str(self.path)!r} is incomplete: it has no {', '.join(sorted(names)[:3])}")

    def _inside(self, name: str) -> str:
        """Make a member's name relative to the data set's own folder; refuse one that points outside."""
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts:
            raise InputError(f"archive {str(self.path)!r} has a member {name!r} that points outside its folder")
        return "/".join(parts[1:] if len(parts) > 1 and parts[0] in self.tops else parts)

    def _refuse_bomb(self, name: str, size: int) -> None:
        """Refuse a member that would fill memory; archives tell the size before anything is unpacked."""
        if size > LARGEST:
            raise InputError(
                f"archive {str(self.path)!r} has a member {name!r} of {size:,} bytes; allowed: up to {LARGEST:,}"
            )


class Folder(Container):
    """Files in a folder; hidden ones do not count."""

    def names(self) -> list[str]:
        """List the files, sorted."""
        return [name for name, _, _ in self.signature()]

    def read(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the order asked for."""
        lacking = [name for name in names if not (self.path / name).is_file()]
        if lacking:
            raise self._lacks(lacking)
        for name in names:
            yield name, _bytes(self.path / name)

    def where(self, name: str) -> str:
        """Name a file for people."""
        return str(self.path / name)

    def signature(self) -> Signature:
        """List all files with size and time of change."""
        try:
            return sorted(_walk(self.path, ""))
        except OSError as error:
            raise InputError(f"{error.filename!r} in folder {str(self.path)!r}: {error.strerror}") from None


def _walk(folder: str | Path, prefix: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
            else:
                found = entry.stat()
                yield prefix + entry.name, found.st_size, found.st_mtime_ns


class Tar(Container):
    """Files in a tar archive, read in one pass from front to back."""

    def names(self) -> list[str]:
        """List the regular files, sorted."""
        return sorted(name for name, _ in self._members([]))

    def read(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the archive's order."""
        lacking = set(names)
        for name, content in self._members(lacking):
            if name in lacking:
                lacking.remove(name)
                yield name, content
        if lacking:
            raise self._lacks(lacking)

    def _members(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        try:
            with tarfile.open(self.path) as archive:
                for member in archive:
                    name = self._inside(member.name)
                    if member.isfile():
                        self._refuse_bomb(name, member.size if name in wanted else 0)
                        stream = archive.extractfile(member) if name in wanted else None
                        yield name, stream.read() if stream else b""
        except UNREADABLE as error:
            raise _damaged(self.path, error) from None


class Zip(Container):
    """Files in a zip archive."""

    def names(self) -> list[str]:
        """List the files, sorted."""
        with self._open() as archive:
            return sorted(self._by_name(archive))

    def read(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the order asked for."""
        with self._open() as archive:
            members = self._by_name(archive)
            lacking = [name for name in names if name not in members]
            if lacking:
                raise self._lacks(lacking)
            for name in names:
                self._refuse_bomb(name, members[name].file_size)
                try:
                    content = archive.read(members[name])
                except UNREADABLE as error:
                    raise _damaged(self.path, error) from None
                yield name, content

    def _by_name(self, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
        members = (member for member in archive.infolist() if not member.filename.endswith("/"))
        return {self._inside(member.filename): member for member in members}

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except UNREADABLE as error:
            raise _damaged(self.path, error) from None


def open_container(path: Path, tops: Collection[str] = ()) -> Container:
    """Open a folder, a tar or zip archive, or a plain file; `tops` are names of the folder inside an archive."""
    if path.is_dir():
        return Folder(path)
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return Tar(path, tops)
    return Zip(path, tops) if path.suffix == ".zip" else Container(path)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"file {str(path)!r} cannot be read: {error.strerror}") from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"archive {str(path)!r} is damaged or cut short ({reason(error)}); delete it and fetch it again")
