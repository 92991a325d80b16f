"""From a finished run to a bundle for devices: graphs, the backbone once, what each client adds, policies, hashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.bundles.card import Card, card_of, markdown, stored_in
from xfed.bundles.graphs import OPSET, example_inputs, stage_graphs
from xfed.bundles.networks import NETWORKS
from xfed.bundles.policies import Named, anew, in_precision, policies_of
from xfed.bundles.precision import (
    ClientSamples,
    Comparison,
    Labelled,
    Precision,
    compare,
    prepared_inputs,
    writer_for,
)
from xfed.bundles.references import REFERENCED, few, reference
from xfed.data.card import DataCard
from xfed.data.dealing.partition_file import read_partition
from xfed.errors import InputError, unknown
from xfed.files import sha256, write_json, write_text
from xfed.models.network import EarlyExitNetwork
from xfed.runs.reader import Run
from xfed_runtime import FORMATS
from xfed_runtime.inputs import ImageInputs, Inputs, TextInputs
from xfed_runtime.manifest import MANIFEST, VERSION

CARD = "MODEL_CARD.md"


@dataclass(frozen=True)
class Contents:
    """What goes into a bundle, wherever it comes from."""

    model: Callable[[int], EarlyExitNetwork]
    """Loads a client's network, by itself: what it answers is what the bundle must answer."""
    clients: Mapping[int, Mapping[str, Tensor]]
    """Each client's own tensors, by `state_dict` name; the same names for all. May be read one by one."""
    data: DataCard
    macs: Sequence[int]
    policies: tuple[Named, Mapping[int, Named]]
    card: Card
    """Where it comes from and what it is good for, for people."""
    samples: Callable[[int], ClientSamples] | None = None
    """A client's samples, where the data is at hand: what less than float32 is calibrated and judged by."""


def export(run: Run, clients: Sequence[int], formats: Sequence[str], out: Path, precision: Precision = "fp32") -> Card:
    """Write a bundle for some clients of a finished run; give its card."""
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if not clients or not formats:
        raise InputError("an export needs at least one client and one format")
    if precision != "fp32" and ("onnx-stages" not in formats or "executorch" in formats):
        raise InputError(f"an export in {precision} needs the format onnx-stages, and none but ONNX's")
    refuse_existing(out)
    contents = contents_of(run, clients)
    if precision != "fp32":
        contents = replace(contents, samples=samples_of(run))
    return write_bundle(contents, formats, out, precision)


def refuse_existing(out: Path) -> None:
    """Refuse a folder that holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{str(out)!r} exists already; give another folder for the bundle")


def contents_of(run: Run, clients: Sequence[int]) -> Contents:
    """Gather what goes into a bundle for some clients of a finished run."""
    for client in clients:
        if client >= run.experiment.dealing.clients:
            raise InputError(
                f"run {str(run.path)!r} has no client {client}; it has 0 to {run.experiment.dealing.clients - 1}"
            )
    run.require_finished()
    noted = run.environment()
    return Contents(
        model=run.model,
        clients=OwnTensors(run, clients),
        data=run.card,
        macs=noted["network"]["exit_macs"],
        policies=policies_of(run, clients),
        card=card_of(run),
    )


class OwnTensors(Mapping[int, Mapping[str, Tensor]]):
    """The clients' own tensors as a run stores them, read when asked for.

    Where the clients do not all build on one shared file, each client's whole model is its own.
    """

    def __init__(self, run: Run, clients: Sequence[int]) -> None:
        self._run, self._clients = run, list(clients)
        files = {run.shared_file(client) for client in clients}
        if files == {""} or len(files) > 1:
            self.names = set(run.tensors(clients[0]))
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


def samples_of(run: Run) -> Callable[[int], ClientSamples] | None:
    """Give what reads a client's samples; nothing where the data is not at hand, or none was set aside to calibrate."""
    try:
        dataset = run.dataset()
    except InputError:
        return None
    partition = read_partition(run.directory.checked(run.directory.partition), len(dataset))

    def labelled(places: NDArray[np.int64]) -> Labelled:
        chosen = torch.from_numpy(places)
        return Labelled(dataset.inputs[chosen].numpy(), dataset.labels[chosen].numpy(), places)

    def samples(client: int) -> ClientSamples:
        return ClientSamples(labelled(partition[client].calibration), labelled(partition[client].test))

    return samples if partition.sizes("calibration").any() else None


def write_bundle(contents: Contents, formats: Sequence[str], out: Path, precision: Precision = "fp32") -> Card:
    """Write a bundle into a folder that has nothing yet; the manifest last, so a folder that has it is complete."""
    refuse_existing(out)
    try:
        return _write(contents, formats, out, precision)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _write(contents: Contents, formats: Sequence[str], out: Path, precision: Precision) -> Card:
    text = contents.data.kind == "text"
    names = list(contents.clients)
    network, example = contents.model(names[0]), contents.data.example()
    stages = stage_graphs(network, example_inputs(example, len(network.exits), text))
    described, inputs = _describe_inputs(contents, out)
    prepared = prepared_inputs(inputs, contents.samples, names)
    writer = writer_for(precision, out / NETWORKS, stages, network, contents.clients[names[0]], prepared)
    referenced = few(names, REFERENCED)
    clients: dict[str, dict[str, Any]] = {}
    compared: list[Comparison] = []
    everyone, each = contents.policies
    for client, own in contents.clients.items():
        noted = clients[str(client)] = writer.write(client, own, formats)
        if "executorch" in formats:
            program = f"{NETWORKS}/client-{client:06d}.pte"
            write_program(contents.model(client), example, out / program)
            noted["networks"]["executorch"] = [program]
        if client in referenced:
            noted["reference"] = f"references/client-{client:06d}.json"
            write_json(out / noted["reference"], reference(contents.model(client), contents.data))
        policies = in_precision(each.get(client, {}), precision)
        if precision != "fp32" and contents.samples is not None:
            samples, classes = contents.samples(client), len(contents.data.classes)
            float32 = contents.model(client)
            compared.append(compare(client, noted["networks"], out, float32, inputs, samples, classes))
            policies = anew(policies, compared[-1].calibration, [float(macs) for macs in contents.macs])
        noted["policies"] = f"policies/client-{client:06d}.json"
        write_json(out / noted["policies"], policies)
    write_json(out / "policies" / "shared.json", in_precision(everyone, precision))
    card = stored_in(contents.card, precision, compared)
    write_text(out / CARD, markdown(card))
    manifest = {
        "bundle": VERSION,
        "made": {name: version(name) for name in ("xfed", "torch", "onnx", "onnxscript", "numpy")} | {"opset": OPSET},
        "card": card.to_json(),
        "precision": precision,
        "classes": list(contents.data.classes),
        "inputs": described,
        "macs": list(contents.macs),
        "macs_are": "multiply-accumulates of leaving at each exit, the exits passed included"
        + (", for text of full length" if text else ""),
        "formats": list(formats),
        "personal": writer.personal,
        "together": writer.write_together() if "onnx-stages" in formats else None,
        "clients": clients,
        "policies": "policies/shared.json",
    }
    manifest["files"] = {
        path.relative_to(out).as_posix(): {"sha256": sha256(path), "bytes": path.stat().st_size}
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
    write_json(out / MANIFEST, manifest)
    return card


def write_program(network: EarlyExitNetwork, example: Tensor, path: Path) -> None:
    """Write a client's network for ExecuTorch, where that is installed."""
    try:
        from xfed.bundles import executorch
    except ModuleNotFoundError as error:
        raise InputError(
            f"the format executorch needs {error.name}; install it: pip install 'xfed[executorch]'"
        ) from None
    executorch.write_program(network, example, path)


def _describe_inputs(contents: Contents, out: Path) -> tuple[dict[str, Any], Inputs]:
    """Describe what the networks take, and make what prepares it."""
    data = contents.data
    if data.kind == "image":
        shape = tuple(data.input_shape)
        described = {"kind": "image", "shape": list(shape), "scale": data.scale, "mean": data.mean, "std": data.std}
        return described, ImageInputs(shape, data.scale, data.mean, data.std)
    vocabulary = None
    if data.vocabulary is not None:
        vocabulary = "vocabulary.json"
        write_text(out / vocabulary, json.dumps(list(data.vocabulary), ensure_ascii=False) + "\n")
    tokens = (data.tokens or 1) if data.vocabulary is None else len(data.vocabulary)
    length = data.input_shape[0]
    described = {"kind": "text", "length": length, "tokens": tokens, "vocabulary": vocabulary}
    return described, TextInputs(length, tokens, None)
