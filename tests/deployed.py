"""Small bundles with clients whose exits and statistics really differ."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xfed.bundles.bundle import Contents, write_bundle
from xfed.bundles.card import Card, ExitFigures
from xfed.bundles.graphs import StageGraph
from xfed.bundles.policies import USUAL
from xfed.data.dataset import Dataset
from xfed.files import sha256, write_json
from xfed.models.costs import count_costs
from xfed.models.network import EarlyExitNetwork
from xfed_runtime.bundle import Bundle


@dataclass(frozen=True)
class Deployed:
    """A bundle on disk beside the networks it was made of."""

    path: Path
    network: EarlyExitNetwork
    own: Mapping[int, Mapping[str, Tensor]]
    dataset: Dataset
    stages: Sequence[StageGraph] = ()

    def bundle(self) -> Bundle:
        return Bundle.open(self.path)

    def logits(self, client: int, raw: Tensor) -> list[Tensor]:
        """What PyTorch says, at every exit."""
        self.network.load_state_dict(dict(self.own[client]), strict=False)
        with torch.no_grad():
            found = self.network.eval()(self.dataset.normalise(raw)).logits
        return [found[index] for index in sorted(found)]


def random_clients(network: EarlyExitNetwork, clients: Sequence[int]) -> dict[int, dict[str, Tensor]]:
    """Exits and BatchNorm statistics of each client, drawn at random; exits of the size that torch starts them with."""
    own: dict[int, dict[str, Tensor]] = {}
    for client in clients:
        generator = torch.Generator().manual_seed(client)
        own[client] = {}
        for name, tensor in network.state_dict().items():
            if name.startswith("exits.") or "running_" in name:
                drawn = torch.rand(tensor.shape, generator=generator)
                size = 2 * tensor.shape[-1] ** -0.5 if name.endswith("linear.weight") else 1.0
                own[client][name] = drawn + 0.5 if "running_var" in name else size * (drawn - 0.5)
    return own


def contents(network: EarlyExitNetwork, dataset: Dataset, own: Mapping[int, Mapping[str, Tensor]]) -> Contents:
    """What goes into a bundle of a network that no run has trained."""
    costs = count_costs(network, dataset.card.example())
    macs = [costs.leaving_at(index) for index in range(len(network.exits))]
    policies = {"default": {"policy": USUAL.to_json(), "macs": None, "accuracy": None}}
    network.load_state_dict(dict(own[min(own)]), strict=False)
    first = copy.deepcopy(network).eval()

    def model(client: int) -> EarlyExitNetwork:
        mine = copy.deepcopy(first)
        mine.load_state_dict(dict(own[client]), strict=False)
        return mine

    card = Card(dataset.name, "none", "none", {}, [ExitFigures(each) for each in macs], len(own), "nothing")
    return Contents(model, own, dataset.card, macs, (policies, {}), card)


def deploy(
    network: EarlyExitNetwork,
    dataset: Dataset,
    out: Path,
    own: Mapping[int, Mapping[str, Tensor]],
    formats: Sequence[str] = ("onnx-stages", "onnx-if"),
) -> Deployed:
    """Write a bundle of a network that no run has trained."""
    write_bundle(contents(network, dataset, own), formats, out)
    return Deployed(out, network, own, dataset)


def rewrite(path: Path, name: str, content: bytes) -> None:
    """Change a file of a bundle and vouch for it, as a careless or dishonest maker would."""
    (path / name).write_bytes(content)
    noted = {"sha256": sha256(path / name), "bytes": len(content)}
    change_manifest(path, lambda manifest: manifest["files"].update({name: noted}))


def change_manifest(path: Path, change: Any) -> None:
    manifest = json.loads((path / "bundle.json").read_text())
    change(manifest)
    write_json(path / "bundle.json", manifest)
