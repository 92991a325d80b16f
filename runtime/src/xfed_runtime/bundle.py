"""A bundle on disk: graphs, shared weights, what each client adds, policies; and the manifest that vouches for them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.device import Device
from xfed_runtime.inputs import ImageInputs, Inputs, TextInputs
from xfed_runtime.policy import Policy
from xfed_runtime.runtime import Expectation, Runtime
from xfed_runtime.sessions import Graph, IfEngine, SessionSettings, StageEngine
from xfed_runtime.text import Vocabulary

MANIFEST, VERSION = "bundle.json", 1


class BundleError(ValueError):
    """A bundle that cannot be used, told in one sentence."""


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: its files are all there, inside its folder, and as they were written."""

    root: Path
    manifest: Mapping[str, Any]
    classes: tuple[str, ...]
    macs: tuple[int, ...]
    """What leaving at each exit costs, the exits passed included; for text at full length."""
    inputs: Inputs

    @classmethod
    def open(cls, path: Path | str) -> Bundle:
        """Open a bundle; check the manifest, that no path leaves the folder, and the content of every file."""
        root = Path(path)
        try:
            manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BundleError(f"{str(root)!r} is not a bundle: {MANIFEST} cannot be read ({error})") from None
        try:
            if manifest["bundle"] != VERSION:
                raise BundleError(
                    f"bundle {str(root)!r} has version {manifest['bundle']!r}; this runtime reads {VERSION}"
                )
            for name, noted in manifest["files"].items():
                _check_file(root, name, noted["sha256"])
            return cls(root, manifest, tuple(manifest["classes"]), tuple(manifest["macs"]), _inputs(root, manifest))
        except (KeyError, TypeError, AttributeError) as error:
            raise BundleError(f"bundle {str(root)!r} has a damaged {MANIFEST}: {error!r}") from None

    @property
    def clients(self) -> tuple[int, ...]:
        """Clients whose models the bundle holds."""
        return tuple(sorted(int(client) for client in self.manifest["clients"]))

    @property
    def formats(self) -> tuple[str, ...]:
        """Forms of the graphs that the bundle holds."""
        return tuple(self.manifest["formats"])

    def file(self, name: str) -> Path:
        """Give the path of a file that the manifest vouches for."""
        return _vouched(self.root, self.manifest, name)

    def tensors(self, client: int) -> dict[str, NDArray[Any]]:
        """Read what a client adds to the shared weights; nothing in the file is ever executed."""
        path = self.file(self._entry("clients", client))
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise BundleError(f"client file {str(path)!r} cannot be read: {error}") from None

    def policies(self, client: int) -> dict[str, Expectation]:
        """Read the policies for a client, by name, with what to expect of them; its own go before everyone's."""
        named: dict[str, Expectation] = {}
        files = self.manifest["policies"]
        for name in (files["shared"], files["clients"].get(str(client))):
            if name is not None:
                named |= _read_policies(self.file(name))
        return named

    def runtime(
        self,
        client: int,
        format: str = "onnx-stages",
        threads: int = 1,
        device: Device | None = None,
        settings: SessionSettings | None = None,
    ) -> Runtime:
        """Load a client's network; `device` is this device's latency table, for deadlines.

        `settings`, in place of `threads`, looks inside ONNX Runtime.
        """
        if format not in self.formats:
            raise BundleError(f"the bundle has no format {format!r}; it has: {', '.join(self.formats)}")
        own = self.tensors(client)
        settings = settings or SessionSettings(threads)
        graphs = [Graph(self.file(g["file"]), tuple(g["personal"])) for g in self.manifest["formats"][format]["graphs"]]
        for name in {name for graph in graphs for name in graph.personal} - set(own):
            raise BundleError(f"the file of client {client} has no tensor {name!r}, which the graphs need")
        make = StageEngine if format == "onnx-stages" else IfEngine
        try:
            engine = make(graphs, own, settings)
        except Exception as error:  # ONNX Runtime raises kinds of its own
            raise BundleError(f"ONNX Runtime does not load the graphs: {str(error).splitlines()[0]}") from error
        return Runtime(client, format, engine, self.inputs, self.classes, self.macs, self.policies(client), device)

    def _entry(self, kind: str, client: int) -> str:
        entries: Mapping[str, str] = self.manifest[kind]
        if str(client) not in entries:
            raise BundleError(f"the bundle has no client {client}; it has: {_ranges(self.clients)}")
        return entries[str(client)]


def _check_file(root: Path, name: str, noted: str) -> None:
    pure = PurePosixPath(name)
    path = root / name
    if pure.is_absolute() or ".." in pure.parts or not path.resolve().is_relative_to(root.resolve()):
        raise BundleError(f"bundle {str(root)!r} names a file outside of itself: {name!r}")
    if not path.is_file():
        raise BundleError(f"bundle {str(root)!r} lacks its file {name!r}")
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != noted:
            raise BundleError(
                f"file {name!r} of bundle {str(root)!r} is not what {MANIFEST} vouches for (sha256 differs)"
            )


def _vouched(root: Path, manifest: Mapping[str, Any], name: str) -> Path:
    if name not in manifest["files"]:
        raise BundleError(f"bundle {str(root)!r} has no file {name!r} among those that {MANIFEST} vouches for")
    return root / name


def _inputs(root: Path, manifest: Mapping[str, Any]) -> Inputs:
    described = manifest["inputs"]
    if described["kind"] == "image":
        return ImageInputs(tuple(described["shape"]), described["scale"], described["mean"], described["std"])
    vocabulary = None
    if described["vocabulary"] is not None:
        words = json.loads(_vouched(root, manifest, described["vocabulary"]).read_text(encoding="utf-8"))
        vocabulary = Vocabulary(tuple(words))
    return TextInputs(described["length"], described["tokens"], vocabulary)


def _read_policies(path: Path) -> dict[str, Expectation]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Expectation(Policy.from_json(each["policy"]), each["macs"], each["accuracy"])
            for name, each in content.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BundleError(f"policies {str(path)!r} of the bundle cannot be read: {error}") from None


def _ranges(clients: tuple[int, ...]) -> str:
    """Name clients shortly: 0-9, 12."""
    parts: list[list[int]] = []
    for client in clients:
        if parts and client == parts[-1][-1] + 1:
            parts[-1][1:] = [client]
        else:
            parts.append([client])
    return ", ".join("-".join(map(str, part)) for part in parts) or "none"
