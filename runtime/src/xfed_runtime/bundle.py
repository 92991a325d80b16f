"""A bundle on disk: a graph for each stage and client, weights, policies; and the manifest that vouches for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.device import Device
from xfed_runtime.executorch import ExecuTorchEngine
from xfed_runtime.inputs import Inputs
from xfed_runtime.manifest import (
    MANIFEST,
    BundleError,
    ClientFiles,
    Manifest,
    check_file,
    inputs_of,
    read_file,
    read_json,
)
from xfed_runtime.onnx_file import GraphError, Tensor, external_tensors
from xfed_runtime.policy import Policy, PolicyError
from xfed_runtime.runtime import Expectation, Runtime
from xfed_runtime.sessions import Engine, IfEngine, SessionSettings, StageEngine, Stages

__all__ = ["Bundle", "BundleError"]


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: its files are all there, inside its folder, and as they were written."""

    root: Path
    manifest: Manifest
    inputs: Inputs
    _together: dict[SessionSettings, Stages] = field(default_factory=dict, compare=False, repr=False)
    _lock: Lock = field(default_factory=Lock, compare=False, repr=False)

    @classmethod
    def open(cls, path: Path | str, digest: str | None = None) -> Bundle:
        """Open a bundle; check the manifest, that no path leaves the folder, and the content of every file.

        With `digest`, it must be the very bundle that this digest was noted of (see `digest`).
        """
        root = Path(path)
        manifest = Manifest.read(root)
        if digest is not None and digest.lower() != manifest.digest:
            raise BundleError(f"bundle {str(root)!r} has the digest {manifest.digest}, not {digest}")
        for name, noted in manifest.files.items():
            check_file(root, name, noted)
        return cls(root, manifest, inputs_of(root, manifest))

    @property
    def digest(self) -> str:
        """Identify the bundle with everything in it: the sha256 of its manifest, which notes those of all files."""
        return self.manifest.digest

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.manifest.classes

    @property
    def macs(self) -> tuple[int, ...]:
        """What leaving at each exit costs, the exits passed included; for text at full length."""
        return self.manifest.macs

    @property
    def clients(self) -> tuple[int, ...]:
        """Clients whose models the bundle holds."""
        return tuple(sorted(self.manifest.clients))

    @property
    def formats(self) -> tuple[str, ...]:
        """Forms of the graphs that the bundle holds."""
        return self.manifest.formats

    def json(self, name: str) -> Any:
        """Read a JSON file that the manifest vouches for."""
        if name not in self.manifest.files:
            raise BundleError(f"bundle {str(self.root)!r} has no file {name!r} among those that {MANIFEST} vouches for")
        return read_json(self.root, name, self.manifest.files)

    def tensors(self, client: int) -> dict[str, NDArray[Any]]:
        """Read what a client adds to the shared weights."""
        weights = self._client(client).weights
        content = b"" if weights is None else self._read(weights)
        found = {each.name: each.read(content) for each in self.manifest.personal}
        for name, values in found.items():
            _refuse_not_finite(name, values)
        return found

    def policies(self, client: int) -> dict[str, Expectation]:
        """Read the policies for a client, by name, with what to expect of them; its own go before everyone's."""
        named: dict[str, Expectation] = {}
        for name in (self.manifest.policies, self._client(client).policies):
            named |= _policies(name, self.json(name), len(self.macs))
        if "default" not in named:
            raise BundleError(f"bundle {str(self.root)!r} has no policy 'default' for client {client}")
        return named

    def runtime(
        self,
        client: int,
        format: str = "onnx-stages",
        threads: int = 1,
        device: Device | None = None,
        settings: SessionSettings | None = None,
        sharing: bool = False,
    ) -> Runtime:
        """Load a client's network; its files are checked again. `device` is this device's latency table.

        `settings`, in place of `threads`, also says on what ONNX Runtime runs. With `sharing`, all clients loaded so
        from this bundle use one copy of what they share; each answer takes a little longer.
        """
        files = self._client(client)
        if format not in self.formats:
            raise BundleError(f"the bundle has no format {format!r}; it has: {', '.join(self.formats)}")
        settings = settings or SessionSettings(threads)
        engine: Engine
        if sharing:
            engine = StageEngine(self._stages_together(format, settings), self.tensors(client))
        elif format == "executorch":
            engine = ExecuTorchEngine(self._read(files.networks[format][0]), len(self.macs))
        elif format == "onnx-stages":
            engine = StageEngine(self._stages(files.networks[format], settings), {})
        else:
            self._check_graphs(files.networks[format])
            engine = IfEngine(self._paths(files.networks[format]), settings, len(self.macs), len(self.classes))
        return Runtime(client, format, engine, self.inputs, self.classes, self.macs, self.policies(client), device)

    def _stages_together(self, format: str, settings: SessionSettings) -> Stages:
        """Load the graphs that take clients' own tensors as inputs, once."""
        if format != "onnx-stages" or self.manifest.together is None:
            raise BundleError("this bundle's clients share no graphs in this format; load them without sharing")
        if settings.profiles is not None:  # sessions that write a profile of their own serve nobody else
            return self._stages(self.manifest.together, settings)
        with self._lock:
            if settings not in self._together:
                self._together[settings] = self._stages(self.manifest.together, settings)
            return self._together[settings]

    def _stages(self, graphs: Sequence[str], settings: SessionSettings) -> Stages:
        self._check_graphs(graphs)
        return Stages.load(self._paths(graphs), settings, len(self.classes))

    def _paths(self, graphs: Sequence[str]) -> list[Path]:
        return [self.root / name for name in graphs]

    def _check_graphs(self, graphs: Sequence[str]) -> None:
        """Make sure that graphs, and the files that they refer to, are what the manifest vouches for, and sound."""
        wanted: dict[str, list[Tensor]] = {}
        for graph in graphs:
            try:
                for tensor in external_tensors(self._read(graph)):
                    wanted.setdefault(self._vouched(graph, tensor), []).append(tensor)
            except GraphError as error:
                raise BundleError(f"graph {graph!r} of bundle {str(self.root)!r} is refused: {error}") from None
        for name, tensors in wanted.items():
            content = np.frombuffer(self._read(name) or b"\0", dtype=np.uint8)
            for tensor in tensors:
                try:
                    _refuse_not_finite(tensor.name, tensor.floats(content))
                except GraphError as error:
                    raise BundleError(f"file {name!r} of bundle {str(self.root)!r} is refused: {error}") from None

    def _vouched(self, graph: str, tensor: Tensor) -> str:
        """Name the file of a tensor as the manifest does; a graph may refer to no other."""
        folder = graph.rpartition("/")[0]
        name = f"{folder}/{tensor.location}" if folder else str(tensor.location)
        if name not in self.manifest.files:
            raise GraphError(
                f"its tensor {tensor.name!r} is in {tensor.location!r}, which is no file that {MANIFEST} vouches for"
            )
        return name

    def _read(self, name: str) -> bytes:
        return read_file(self.root, name, self.manifest.files)

    def _client(self, client: int) -> ClientFiles:
        if client not in self.manifest.clients:
            raise BundleError(f"the bundle has no client {client}; it has: {_ranges(self.clients)}")
        return self.manifest.clients[client]


def _refuse_not_finite(name: str, values: NDArray[Any] | None) -> None:
    if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BundleError(f"the tensor {name!r} of the bundle has numbers that are not finite")


def _policies(file: str, content: Any, exits: int) -> dict[str, Expectation]:
    try:
        return {name: _expectation(each, exits) for name, each in content.items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise BundleError(f"policies {file!r} of the bundle cannot be used: {what}") from None


def _expectation(noted: Mapping[str, Any], exits: int) -> Expectation:
    policy = Policy.from_json(noted["policy"])
    if policy.kind != "anytime":
        policy.start(exits)
    for name in ("macs", "accuracy"):
        value = noted[name]
        known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e30
        if value is not None and not known:
            raise PolicyError(f"{name} is {value!r}; allowed: a number from 0, or null")
    return Expectation(policy, noted["macs"], noted["accuracy"])


def _ranges(clients: tuple[int, ...]) -> str:
    """Name clients shortly: 0-9, 12."""
    parts: list[list[int]] = []
    for client in clients:
        if parts and client == parts[-1][-1] + 1:
            parts[-1][1:] = [client]
        else:
            parts.append([client])
    return ", ".join("-".join(map(str, part)) for part in parts) or "none"
