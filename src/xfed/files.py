"""Files that are either whole or absent: written beside their place, then renamed into it.

What goes wrong with one is an `OSError` that names the file, whichever library wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from xfed.errors import InputError


@contextmanager
def whole(path: Path, private: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to; it takes the place of `path` only when the block succeeds.

    Whatever writes it, the file gets the permissions that any new file of the user's has; a `private` one is for its
    owner alone, from the first byte on. What is there and no plain file, such as a device, is refused: a rename would
    put an end to it.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{str(path)!r} is no plain file and would be replaced by one; give another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(0o600 if private else 0o666)
        usual = temporary.stat().st_mode
        yield temporary
        if temporary.stat().st_mode != usual:
            temporary.chmod(usual)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise _about(path, error) from error
    finally:
        with suppress(OSError):  # where the folder cannot be reached, that was said already
            temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path, kinds: Sequence[str]) -> Iterator[Path]:
    """Give an empty folder to fill; it takes the place of `folder` only when the block succeeds, with all its files.

    A folder that holds anything but files of these kinds (patterns of names) is somebody else's and is refused, and so
    is what is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{str(folder)!r} is no folder and would be replaced by one; give another name")
    for path in folder.iterdir() if folder.is_dir() else ():
        if not any(fnmatch(path.name, kind) for kind in kinds):
            raise InputError(
                f"folder {str(folder)!r} holds {path.name!r} and would be replaced; give a folder of its own"
            )
    fresh, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        yield fresh
        if folder.exists():
            os.rename(folder, old)
        os.rename(fresh, folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            os.rename(old, folder)
        raise _about(folder, error) from error
    finally:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _about(path: Path, error: OSError | SafetensorError) -> OSError:
    """Name the file and the number of an error, which some libraries only write into their message."""
    number = error.errno if isinstance(error, OSError) else None
    noted = re.search(r"(?:os error|errno) (\d+)", str(error), re.IGNORECASE)
    if number is None and noted is not None:
        number = int(noted[1])
    if number is None:
        return OSError(f"{str(path)!r} cannot be written: {error}")
    return OSError(number, os.strerror(number), str(path))


def sweep(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left of `whole`, all folders below included."""
    for path in folder.rglob(".*.tmp"):
        writer = path.suffixes[-2:-1]
        if path.is_file() and writer and writer[0][1:].isdecimal() and not _running(int(writer[0][1:])):
            path.unlink(missing_ok=True)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def refuse_foreign(path: Path, mark: str) -> None:
    """Refuse to replace a text file that lacks a mark which all of ours have."""
    if path.exists() and mark not in path.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{str(path)!r} is there, is none of ours and would be replaced; give a folder of its own")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors (safetensors) whole."""
    with whole(path) as temporary:
        safetensors.torch.save_file({name: t.contiguous() for name, t in tensors.items()}, temporary, metadata)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors; safetensors checks the header and never executes anything."""
    tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Read the words that `write_tensors` was given beside tensors."""
    with safetensors.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def content_digest(tensors: Mapping[str, Tensor]) -> str:
    """Identify named tensors by their numbers, however they are stored."""
    content = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        content.update(name.encode())
        content.update(tensor.contiguous().numpy().data)
    return content.hexdigest()


def sha256(path: Path) -> str:
    """Content checksum of one file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
