"""From a finished run to a bundle for devices: graphs, the backbone once, what each client adds, policies, hashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnx import GraphProto, TensorProto, helper
from torch import Tensor

from xfed.data.card import DataCard
from xfed.errors import InputError, unknown
from xfed.export.graphs import IR_VERSION, OPSET, StageGraph, example_inputs, stage_graphs
from xfed.export.nested_if import nested_if
from xfed.export.policies import Named, policies_of
from xfed.export.weights import SharedWeights, personal, write_client
from xfed.files import sha256, write_json
from xfed.models.network import EarlyExitNetwork
from xfed.runs.reader import Run
from xfed_runtime import FORMATS
from xfed_runtime.bundle import MANIFEST, VERSION

GRAPHS = "graphs"


@dataclass(frozen=True)
class Contents:
    """What goes into a bundle, wherever it comes from."""

    network: EarlyExitNetwork
    """Some client's network; the numbers that are no client's own are everyone's."""
    clients: Mapping[int, Mapping[str, Tensor]]
    """Each client's own tensors, by `state_dict` name; the same names for all. May be read one by one."""
    card: DataCard
    macs: Sequence[int]
    policies: tuple[Named, Mapping[int, Named]]
    origin: Mapping[str, Any]
    """Where it comes from, for people."""


def export(run: Run, clients: Sequence[int], formats: Sequence[str], out: Path) -> None:
    """Write a bundle for some clients of a finished run."""
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if not clients or not formats:
        raise InputError("an export needs at least one client and one format")
    for client in clients:
        if client >= run.experiment.dealing.clients:
            raise InputError(
                f"run {str(run.path)!r} has no client {client}; it has 0 to {run.experiment.dealing.clients - 1}"
            )
    run.require_finished()
    _refuse_existing(out)
    write_bundle(_contents(run, clients), formats, out)


def _refuse_existing(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{str(out)!r} exists already; give another folder for the bundle")


def _contents(run: Run, clients: Sequence[int]) -> Contents:
    experiment = run.experiment
    noted = run.environment()
    return Contents(
        network=run.model(clients[0]),
        clients=OwnTensors(run, clients),
        card=run.card,
        macs=noted["network"]["exit_macs"],
        policies=policies_of(run, clients),
        origin={
            "path": str(run.path),
            "method": experiment.method,
            "dataset": experiment.dataset,
            "model": experiment.model,
            "rounds": experiment.training.rounds,
            "seed": experiment.seed,
            "fingerprint": noted["fingerprint"],
        },
    )


class OwnTensors(Mapping[int, Mapping[str, Tensor]]):
    """The clients' own tensors as a run stores them, read when asked for.

    Where the clients do not all build on one shared file, each client's whole model is its own.
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
    _refuse_existing(out)
    try:
        _write(contents, formats, out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _write(contents: Contents, formats: Sequence[str], out: Path) -> None:
    text = contents.card.kind == "text"
    (out / GRAPHS).mkdir(parents=True)
    network, example = contents.network.eval(), contents.card.example()
    stages = stage_graphs(network, example_inputs(example, len(network.exits), text))
    first = contents.clients[next(iter(contents.clients))]
    described = _write_graphs(stages, network.state_dict(), set(first), formats, out)
    used = {name for stage in stages for name in stage.weights}
    for client, own in contents.clients.items():
        write_client(out / _client_file(client), {name: tensor for name, tensor in own.items() if name in used})
    everyone, each = contents.policies
    write_json(out / "policies" / "shared.json", everyone)
    for client in contents.clients:
        write_json(out / _policy_file(client), each.get(client, {}))
    inputs = _describe_inputs(contents, out)
    manifest = {
        "bundle": VERSION,
        "made": {name: version(name) for name in ("xfed", "torch", "onnx", "onnxscript", "numpy")} | {"opset": OPSET},
        "run": dict(contents.origin),
        "classes": list(contents.card.classes),
        "inputs": inputs,
        "macs": list(contents.macs),
        "macs_are": "multiply-accumulates of leaving at each exit, the exits passed included"
        + (", for text of full length" if text else ""),
        "personal": {"tensors": len(used & set(first)), "whole_model": used <= set(first)},
        "formats": described,
        "clients": {str(client): _client_file(client) for client in contents.clients},
        "policies": {
            "shared": "policies/shared.json",
            "clients": {str(client): _policy_file(client) for client in contents.clients},
        },
    }
    manifest["files"] = {
        path.relative_to(out).as_posix(): {"sha256": sha256(path), "bytes": path.stat().st_size}
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
    write_json(out / MANIFEST, manifest)


def _client_file(client: int) -> str:
    return f"clients/client-{client:06d}.npz"


def _policy_file(client: int) -> str:
    return f"policies/client-{client:06d}.json"


def _write_graphs(
    stages: Sequence[StageGraph], tensors: Mapping[str, Tensor], own: set[str], formats: Sequence[str], out: Path
) -> dict[str, Any]:
    """Write the graphs of all formats and the one file of shared weights; describe them for the manifest."""
    described: dict[str, Any] = {}
    weights = out / GRAPHS / "weights.bin"
    with weights.open("wb") as stream:
        shared = SharedWeights(weights, stream)

        def fill(stage: StageGraph) -> tuple[list[TensorProto], list[TensorProto]]:
            named = [
                personal(name, tensors[name]) if name in own else shared.external(name, tensors[name])
                for name in stage.weights
            ]
            return named, [shared.constant(constant) for constant in stage.constants]

        filled = [fill(stage) for stage in stages]
        initializers = [[*named, *constants] for named, constants in filled]
        if "onnx-stages" in formats:
            graphs = [stage.graph(each) for stage, each in zip(stages, initializers, strict=True)]
            names = [sorted(own.intersection(stage.weights)) for stage in stages]
            files = [f"{GRAPHS}/stage-{number}.onnx" for number in range(1, len(stages) + 1)]
            described["onnx-stages"] = {"graphs": _save(graphs, names, files, out)}
        if "onnx-if" in formats:
            whole = nested_if(stages, [tensor for each in initializers for tensor in each])
            names = [sorted(own.intersection(name for stage in stages for name in stage.weights))]
            described["onnx-if"] = {
                "graphs": _save([whole], names, [f"{GRAPHS}/if.onnx"], out),
                "batch": 1,
                "policies": ["confidence", "margin", "entropy", "fixed"],
                "answers": ["own", "running"],
            }
    return described


def _save(
    graphs: Sequence[GraphProto], names: Sequence[list[str]], files: Sequence[str], out: Path
) -> list[dict[str, Any]]:
    for graph, file in zip(graphs, files, strict=True):
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="xfed"
        )
        (out / file).write_bytes(model.SerializeToString(deterministic=True))
    return [{"file": file, "personal": own} for file, own in zip(files, names, strict=True)]


def _describe_inputs(contents: Contents, out: Path) -> dict[str, Any]:
    card = contents.card
    if card.kind == "image":
        numbers = {"scale": card.scale, "mean": card.mean, "std": card.std}
        return {"kind": "image", "shape": list(card.input_shape), **numbers}
    vocabulary = None
    if card.vocabulary is not None:
        vocabulary = "vocabulary.json"
        (out / vocabulary).write_text(json.dumps(list(card.vocabulary), ensure_ascii=False) + "\n", encoding="utf-8")
    tokens = card.tokens if card.vocabulary is None else len(card.vocabulary)
    return {"kind": "text", "length": card.input_shape[0], "tokens": tokens, "vocabulary": vocabulary}
