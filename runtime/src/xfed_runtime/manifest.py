"""The manifest of a bundle: what it holds, checked word for word before anything else is read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed_runtime import FORMATS
from xfed_runtime.inputs import ImageInputs, Inputs, TextInputs
from xfed_runtime.text import Vocabulary

MANIFEST, VERSION = "bundle.json", 2
SIGNATURE = f"{MANIFEST}.sig"
"""Ed25519 signature of the manifest's bytes, where a bundle is signed; the manifest vouches for everything else."""

CHUNK = 1 << 20
LARGEST_INPUT = 1 << 28
"""Numbers in one input: more is a mistake or an attack."""


class BundleError(ValueError):
    """A bundle that cannot be used, told in one sentence."""


@dataclass(frozen=True)
class File:
    """What the manifest notes of a file."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Personal:
    """Where a tensor lies in every client's own file: the layout is the same for all clients."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int

    def read(self, content: bytes) -> NDArray[Any]:
        """Cut the tensor out of a client's file."""
        kind = np.dtype(self.type)
        return np.frombuffer(content, kind, math.prod(self.shape), self.offset).reshape(self.shape)

    @property
    def end(self) -> int:
        """Where the tensor's bytes end."""
        return self.offset + math.prod(self.shape) * np.dtype(self.type).itemsize


@dataclass(frozen=True)
class ClientFiles:
    """One client's files: graphs by format, its own tensors (none where all clients have one model), policies."""

    networks: Mapping[str, tuple[str, ...]]
    weights: str | None
    policies: str


@dataclass(frozen=True)
class Manifest:
    """A manifest whose every entry has been looked at."""

    content: Mapping[str, Any]
    """The manifest as it is, for people and for what is not checked here."""
    digest: str
    """sha256 of the manifest's bytes. As it notes the sha256 of every file, it stands for the whole bundle."""
    files: Mapping[str, File]
    classes: tuple[str, ...]
    macs: tuple[int, ...]
    formats: tuple[str, ...]
    clients: Mapping[int, ClientFiles]
    policies: str
    personal: tuple[Personal, ...]
    together: tuple[str, ...] | None
    """Graphs per stage that take a client's own tensors as inputs, where the bundle has them."""
    inputs: Mapping[str, Any]

    @classmethod
    def read(cls, root: Path) -> Manifest:
        """Read and check the manifest of a bundle."""
        try:
            raw = (root / MANIFEST).read_bytes()
            content = json.loads(raw)
        except (OSError, ValueError, RecursionError) as error:
            raise BundleError(f"{str(root)!r} is not a bundle: {MANIFEST} cannot be read ({error})") from None
        found = Reader(root, content)
        version = found.get("bundle", int)
        if version != VERSION:
            raise BundleError(f"bundle {str(root)!r} has version {version}; this runtime reads {VERSION}: export again")
        found.files = files = {_file_name(found, name): _file(found, name) for name in found.get("files", dict)}
        classes = tuple(found.get("classes", list))
        if not classes or not all(isinstance(name, str) for name in classes):
            found.damaged("classes", "at least one name")
        macs = tuple(found.get("macs", list))
        if not macs or not all(_whole(value, 1) for value in macs) or any(np.diff(macs) <= 0):
            found.damaged("macs", "whole numbers that rise from exit to exit")
        formats = tuple(found.get("formats", list))
        if not formats or any(name not in FORMATS for name in formats):
            found.damaged("formats", f"some of {', '.join(FORMATS)}")
        personal = tuple(_personal(found, each) for each in found.get("personal", list))
        together = None if found.get("together") is None else found.names("together", len(macs))
        clients = {
            _client_number(found, key): _client(found, key, formats, len(macs), personal)
            for key in found.get("clients", dict)
        }
        if not clients:
            found.damaged("clients", "at least one")
        return cls(
            content=content,
            digest=hashlib.sha256(raw).hexdigest(),
            files=files,
            classes=classes,
            macs=macs,
            formats=formats,
            clients=clients,
            policies=found.name("policies"),
            personal=personal,
            together=together,
            inputs=found.get("inputs", dict),
        )


class Reader:
    """Takes entries out of a decoded manifest and tells what is wrong with them."""

    def __init__(self, root: Path, content: Any) -> None:
        self.root, self.content = root, content
        self.files: Mapping[str, File] = {}
        if not isinstance(content, dict):
            raise BundleError(f"bundle {str(root)!r} has a damaged {MANIFEST}: it is no JSON object")

    def damaged(self, what: str, allowed: str) -> None:
        """Refuse the bundle."""
        raise BundleError(f"bundle {str(self.root)!r} has a damaged {MANIFEST}: {what}; allowed: {allowed}")

    def get(self, path: str, kind: type | None = None) -> Any:
        """Give the entry under names joined by `/`."""
        value = self.content
        for part in path.split("/"):
            if not isinstance(value, dict) or part not in value:
                raise BundleError(f"bundle {str(self.root)!r} has a damaged {MANIFEST}: it lacks {path!r}")
            value = value[part]
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            self.damaged(f"{path} is {_short(value)}", {dict: "an object", list: "a list", int: "a number"}[kind])
        return value

    def name(self, path: str) -> str:
        """Give an entry that names a file, which the manifest must vouch for."""
        return self.vouched(path, self.get(path))

    def names(self, path: str, count: int) -> tuple[str, ...]:
        """Give an entry that names so many files."""
        values = self.get(path, list)
        if len(values) != count:
            self.damaged(f"{path} names {len(values)} graphs", str(count))
        return tuple(self.vouched(path, value) for value in values)

    def vouched(self, path: str, name: Any) -> str:
        """Make sure that the manifest vouches for a file."""
        if not isinstance(name, str) or name not in self.files:
            raise BundleError(
                f"bundle {str(self.root)!r} has no file {_short(name)} ({path}) among those that {MANIFEST} vouches for"
            )
        return name


def inputs_of(root: Path, manifest: Manifest) -> Inputs:
    """Make what prepares inputs, from its description."""
    found = Reader(root, manifest.content)
    found.files = manifest.files
    kind = found.get("inputs/kind")
    if kind == "image":
        shape = tuple(found.get("inputs/shape", list))
        if len(shape) != 3 or not all(_whole(side, 1) for side in shape) or math.prod(shape) > LARGEST_INPUT:
            found.damaged(f"inputs/shape is {_short(list(shape))}", "channels, height and width")
        given = [found.get(f"inputs/{name}") for name in ("scale", "mean", "std")]
        scale, mean, std = (value if isinstance(value, list) else [value] for value in given)
        fitting = len(scale) == 1 and all(len(each) in (1, shape[0]) for each in (mean, std))
        if not fitting or not all(map(_number, [*scale, *mean, *std])) or min(*scale, *std) <= 0:
            allowed = "numbers, of mean and std one or one per channel, scale and std above 0"
            found.damaged(f"inputs has scale, mean, std {_short(given)}", allowed)
        per_channel = (tuple(map(float, each)) if len(each) > 1 else float(each[0]) for each in (mean, std))
        return ImageInputs(shape, float(scale[0]), *per_channel)
    if kind != "text":
        found.damaged(f"inputs/kind is {_short(kind)}", "image, text")
    length, tokens = found.get("inputs/length"), found.get("inputs/tokens")
    if not _whole(length, 1) or not _whole(tokens, 1) or length > LARGEST_INPUT:
        found.damaged(f"inputs has length {_short(length)}, tokens {_short(tokens)}", "whole numbers from 1")
    vocabulary = None
    if found.get("inputs/vocabulary") is not None:
        words = read_json(root, found.name("inputs/vocabulary"), manifest.files)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(words) > tokens:
            raise BundleError(f"the vocabulary of bundle {str(root)!r} is not a list of at most {tokens} words")
        vocabulary = Vocabulary(tuple(words))
    return TextInputs(length, tokens, vocabulary)


def check_file(root: Path, name: str, noted: File) -> None:
    """Make sure that a file is there, inside the folder, and as the manifest notes it."""
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise BundleError(f"bundle {str(root)!r} names a file outside of itself: {name!r}")
    if not path.is_file():
        raise BundleError(f"bundle {str(root)!r} lacks its file {name!r}")
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise BundleError(f"file {name!r} of bundle {str(root)!r} cannot be read: {error.strerror}") from None
    _check_digest(root, name, digest.hexdigest(), noted)


def read_file(root: Path, name: str, files: Mapping[str, File]) -> bytes:
    """Read a small file whole and make sure that these very bytes are what the manifest notes."""
    try:
        content = (root / name).read_bytes()
    except OSError as error:
        raise BundleError(f"file {name!r} of bundle {str(root)!r} cannot be read: {error.strerror}") from None
    _check_digest(root, name, hashlib.sha256(content).hexdigest(), files[name])
    return content


def _check_digest(root: Path, name: str, digest: str, noted: File) -> None:
    if digest != noted.sha256:
        raise BundleError(f"file {name!r} of bundle {str(root)!r} is not what {MANIFEST} vouches for (sha256 differs)")


def read_json(root: Path, name: str, files: Mapping[str, File]) -> Any:
    """Read a JSON file that the manifest vouches for."""
    try:
        return json.loads(read_file(root, name, files))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"file {name!r} of bundle {str(root)!r} cannot be read: {error}") from None


def _file_name(found: Reader, name: str) -> str:
    pure = PurePosixPath(name)
    parts = name.split("/")
    if pure.is_absolute() or ".." in parts or "\\" in name or ":" in name:
        raise BundleError(f"bundle {str(found.root)!r} names a file outside of itself: {name!r}")
    if "" in parts or "." in parts or any(ord(sign) < 32 for sign in name):
        found.damaged(f"files names {_short(name)}", "names inside the folder, such as policies/shared.json")
    return name


def _file(found: Reader, name: str) -> File:
    noted = found.content["files"][name]
    if not isinstance(noted, dict):
        found.damaged(f"files/{name} is {_short(noted)}", "an object")
    digest, size = noted.get("sha256"), noted.get("bytes")
    hexadecimal = isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    if not hexadecimal or not _whole(size, 0):
        found.damaged(f"files/{name} has sha256 {_short(digest)}, bytes {_short(size)}", "64 hex digits and a size")
    return File(digest, size)


def _personal(found: Reader, noted: Any) -> Personal:
    noted = noted if isinstance(noted, dict) else {}
    name, shape, kind, offset = (noted.get(key) for key in ("name", "shape", "type", "offset"))
    sizes = isinstance(shape, list) and all(_whole(side, 0) for side in shape)
    if not isinstance(name, str) or not sizes or kind not in ("float32", "float16", "int64") or not _whole(offset, 0):
        found.damaged(f"personal has {_short(noted)}", "name, shape, type and offset of a tensor")
    assert isinstance(name, str)
    assert isinstance(shape, list)
    return Personal(name, tuple(shape), str(kind), int(offset or 0))


def _client_number(found: Reader, key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 10 and str(int(key)) == key):
        found.damaged(f"clients has {_short(key)}", "numbers from 0")
    return int(key)


def _client(found: Reader, key: str, formats: Sequence[str], exits: int, personal: Sequence[Personal]) -> ClientFiles:
    counts = {"onnx-stages": exits, "onnx-if": 1, "executorch": 1}
    networks = {name: found.names(f"clients/{key}/networks/{name}", counts[name]) for name in formats}
    weights = None
    if found.get(f"clients/{key}/weights") is not None:
        weights = found.name(f"clients/{key}/weights")
    end = max((tensor.end for tensor in personal), default=0)
    held = 0 if weights is None else found.files[weights].bytes
    if held < end:
        found.damaged(f"the own tensors of client {key} need {end} bytes, but its file has {held}", "a whole file")
    return ClientFiles(networks, weights, found.name(f"clients/{key}/policies"))


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 62


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def _short(value: Any) -> str:
    """Quote a value shortly; what is nested may be nested without end."""
    if isinstance(value, (dict, list)) and any(isinstance(part, (dict, list)) for part in value):
        return f"something nested ({type(value).__name__})"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
