"""From a finished run to a bundle for devices: graphs, the backbone once, what each client adds, policies, hashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from xfed.data.dataset import Dataset
from xfed.errors import InputError, unknown
from xfed.export.card import Card, card_of, markdown
from xfed.export.graphs import OPSET, example_inputs, stage_graphs
from xfed.export.networks import NETWORKS, NetworkWriter
from xfed.export.policies import Named, policies_of
from xfed.export.references import REFERENCED, few, reference
from xfed.files import sha256, write_json, write_text
from xfed.models.network import EarlyExitNetwork
from xfed.running import Run
from xfed_runtime import FORMATS
from xfed_runtime.manifest import MANIFEST, VERSION

CARD = "MODEL_CARD.md"


@dataclass(frozen=True)
class Contents:
    """What goes into a bundle, wherever it comes from."""

    network: EarlyExitNetwork
    """Some client's network; the numbers that are no client's own are everyone's."""
    clients: Mapping[int, Mapping[str, Tensor]]
    """Each client's own tensors, by `state_dict` name; the same names for all. May be read one by one."""
    dataset: Dataset
    macs: Sequence[int]
    policies: tuple[Named, Mapping[int, Named]]
    card: Card
    """Where it comes from and what it is good for, for people."""


def export(run: Run, clients: Sequence[int], formats: Sequence[str], out: Path) -> None:
    """Write a bundle for some clients of a finished run."""
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if not clients or not formats:
        raise InputError("an export needs at least one client and one format")
    refuse_existing(out)
    write_bundle(contents_of(run, clients), formats, out)


def refuse_existing(out: Path) -> None:
    """Refuse a folder that holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{str(out)!r} exists already; give another folder for the bundle")


def contents_of(run: Run, clients: Sequence[int]) -> Contents:
    """Gather what goes into a bundle for some clients of a finished run."""
    for client in clients:
        if client >= run.experiment.clients:
            raise InputError(f"run {str(run.path)!r} has no client {client}; it has 0 to {run.experiment.clients - 1}")
    run.require_finished()
    noted = run.environment()
    return Contents(
        network=run.model(clients[0]),
        clients=OwnTensors(run, clients),
        dataset=run.dataset(),
        macs=noted["network"]["exit_macs"],
        policies=policies_of(run, clients),
        card=card_of(run),
    )


class OwnTensors(Mapping[int, Mapping[str, Tensor]]):
    """The clients' own tensors as a run stores them, read when asked for.

    Where the clients do not all build on one shared file, each client's whole model is its own. A client that never
    trained may store less than others; the rest is then as it was at the start.
    """

    def __init__(self, run: Run, clients: Sequence[int]) -> None:
        self._run, self._clients = run, list(clients)
        files = {run.shared_file(client) for client in clients}
        if files == {""} or len(files) > 1:
            self.names = {name for name, tensor in run.model(clients[0]).state_dict().items() if tensor.ndim}
        else:
            self.names = {name for client in clients for name in run.own_tensors(client)}

    def __getitem__(self, client: int) -> Mapping[str, Tensor]:
        own: Mapping[str, Tensor] = self._run.own_tensors(client)
        if self.names - own.keys():
            own = self._run.model(client).state_dict()
        return {name: own[name] for name in sorted(self.names)}

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def write_bundle(contents: Contents, formats: Sequence[str], out: Path) -> None:
    """Write a bundle into a folder that has nothing yet; the manifest last, so a folder that has it is complete."""
    refuse_existing(out)
    try:
        _write(contents, formats, out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _write(contents: Contents, formats: Sequence[str], out: Path) -> None:
    text = contents.dataset.kind == "text"
    network, example = contents.network.eval(), contents.dataset.example()
    stages = stage_graphs(network, example_inputs(example, len(network.exits), text))
    first = contents.clients[next(iter(contents.clients))]
    writer = NetworkWriter(out / NETWORKS, stages, network.state_dict(), first)
    referenced = few(list(contents.clients), REFERENCED)
    clients = {}
    everyone, each = contents.policies
    for client, own in contents.clients.items():
        policies = f"policies/client-{client:06d}.json"
        write_json(out / policies, each.get(client, {}))
        clients[str(client)] = {**writer.write(client, own, formats), "policies": policies}
        if client in referenced:
            network.load_state_dict(dict(own), strict=False)
            clients[str(client)]["reference"] = name = f"references/client-{client:06d}.json"
            write_json(out / name, reference(network, contents.dataset))
    write_json(out / "policies" / "shared.json", everyone)
    write_text(out / CARD, markdown(contents.card))
    manifest = {
        "bundle": VERSION,
        "made": {name: version(name) for name in ("xfed", "torch", "onnx", "onnxscript", "numpy")} | {"opset": OPSET},
        "card": contents.card.to_json(),
        "classes": list(contents.dataset.classes),
        "inputs": _describe_inputs(contents, out),
        "macs": list(contents.macs),
        "macs_are": "multiply-accumulates of leaving at each exit, the exits passed included"
        + (", for text of full length" if text else ""),
        "formats": list(formats),
        "personal": writer.personal,
        "together": writer.write_together(),
        "clients": clients,
        "policies": "policies/shared.json",
    }
    manifest["files"] = {
        path.relative_to(out).as_posix(): {"sha256": sha256(path), "bytes": path.stat().st_size}
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
    write_json(out / MANIFEST, manifest)


def _describe_inputs(contents: Contents, out: Path) -> dict[str, Any]:
    dataset = contents.dataset
    if dataset.kind == "image":
        numbers = {"scale": dataset.scale, "mean": dataset.mean, "std": dataset.std}
        return {"kind": "image", "shape": list(dataset.input_shape), **numbers}
    vocabulary = None
    if dataset.vocabulary is not None:
        vocabulary = "vocabulary.json"
        (out / vocabulary).write_text(json.dumps(list(dataset.vocabulary), ensure_ascii=False) + "\n", encoding="utf-8")
    tokens = int(dataset.inputs.max()) + 1 if dataset.vocabulary is None else len(dataset.vocabulary)
    return {"kind": "text", "length": dataset.input_shape[0], "tokens": tokens, "vocabulary": vocabulary}
