"""Memory that two processes share: segments of /dev/shm, or files where that is too small.

A container often has 64 MB of /dev/shm. A segment that does not fit is not refused there; the process that first
writes to a page without room is killed by a bus error. So all pages are reserved before anyone writes.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import fields
from functools import cache, partial
from multiprocessing import parent_process
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from xfed.data.dataset import Dataset
from xfed.files import read_tensors, write_tensors

log = logging.getLogger("xfed")
SHARED_MEMORY = Path("/dev/shm")


class FileSegment:
    """A file that sender and receiver map, in the place of a segment of shared memory; its name is its path.

    The receiver removes the name as soon as it has the file open, so that hardly anything is left of a killed run.
    """

    def __init__(self, name: str, create: int | None = None) -> None:
        self.name = name
        with open(name, "w+b" if create else "r+b") as file:
            if create:
                os.posix_fallocate(file.fileno(), 0, create)
            self.buf = mmap.mmap(file.fileno(), 0)
        self.size = len(self.buf)
        if not create:
            self.unlink()

    def unlink(self) -> None:
        """Remove the name; the memory stays as long as someone maps it."""
        with suppress(FileNotFoundError):
            os.unlink(self.name)

    def close(self) -> None:
        """Let go of the memory."""
        self.buf.close()


Segment = SharedMemory | FileSegment


def create_segment(size: int) -> Segment:
    """Make memory to share, all of it reserved: in /dev/shm, or in a temporary file where that has no room."""
    with suppress(OSError):
        segment = SharedMemory(f"xfed-{os.getpid()}-{token_hex(4)}", create=True, size=size)
        if _reserve(SHARED_MEMORY / segment.name, size):
            return segment
        segment.unlink()
        segment.close()
    _say_once()
    handle, path = tempfile.mkstemp(prefix="xfed-")
    os.close(handle)
    return FileSegment(path, create=size)


def open_segment(name: str) -> Segment:
    """Open what another process made."""
    return FileSegment(name) if os.path.isabs(name) else SharedMemory(name)


def _reserve(path: Path, size: int) -> bool:
    """Take all pages of a segment; where there is no such file to take them of, a system does so itself."""
    if not path.is_file():
        return True
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.ENOMEM)
    return True


def share_samples(dataset: Dataset, until: ExitStack) -> Dataset:
    """Lay samples where workers need no copy; in a temporary file, `until` then, where /dev/shm has no room."""
    tensors = {name: value for name in ("inputs", "labels", "groups") if (value := getattr(dataset, name)) is not None}
    if dataset.reopen is not None or _free() > sum(tensor.nbytes for tensor in tensors.values()):
        return dataset.shared()
    _say_once()
    path = Path(until.enter_context(TemporaryDirectory(prefix="xfed-"))) / "samples.safetensors"
    write_tensors(path, tensors)
    rest = {f.name: getattr(dataset, f.name) for f in fields(dataset) if f.init and f.name not in ("inputs", "labels")}
    return _open_samples(path, rest | {"groups": None}, dataset.checksum())


def _open_samples(path: Path, rest: dict[str, Any], digest: str) -> Dataset:
    dataset = Dataset(**{**rest, **read_tensors(path)})
    return dataset.in_files(digest, partial(_open_samples, path, rest, digest))


def _free() -> float:
    """Give the bytes that are free in shared memory; where it is no folder, it has no limit of its own."""
    return shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else float("inf")


@cache
def _say_once() -> None:
    if parent_process() is None:  # a worker has nobody to tell
        log.warning(
            "%s has too little room (%.0f MB free): what workers share goes through files in %s, which may be slower; "
            "with Docker, --shm-size=1g gives more",
            SHARED_MEMORY,
            _free() / 1e6,
            tempfile.gettempdir(),
        )
