"""Compare runs down to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from xfed import Run
from xfed.files import read_tensors
from xfed.runs.directory import RunDirectory
from xfed.runs.store import ClientStore


def contents(run: Run) -> dict[str, Any]:
    """Everything a run computed: server, client states, what the server keeps, models, metrics, costs."""
    directory = run.directory
    checkpoint = directory.checkpoints.read()
    found: dict[str, Any] = {f"server/{name}": tensor for name, tensor in checkpoint.tensors.items()}
    for kind, root, versions in (
        ("client", directory.client_states, checkpoint.client_versions),
        ("kept", directory.server_states, checkpoint.kept_versions),
    ):
        store = ClientStore(root, versions)
        for client in store.known():
            found |= {f"{kind}/{client}/{name}": tensor for name, tensor in store.get(client).items()}
        found[f"{kind}/versions"] = versions
    for path in sorted(directory.models.iterdir()):
        found |= {f"models/{path.name}/{name}": tensor for name, tensor in read_tensors(path).items()}
    for evaluation in run.evaluations():
        found[f"metrics/{evaluation.round}"] = torch.from_numpy(np.array(evaluation.accuracies))
        found[f"trained/{evaluation.round}"] = torch.from_numpy(np.array(evaluation.trained))
    for path in sorted(directory.traces.iterdir()):
        for name, column in pq.read_table(path).to_pydict().items():
            found[f"traces/{path.name}/{name}"] = column
    found["rounds"] = [replace(record, train_seconds=0.0, evaluation_seconds=0.0) for record in run.records()]
    return found


def differences(one: Run, other: Run) -> list[str]:
    """Name what differs between two runs; nothing when they are equal to the last bit."""
    a, b = contents(one), contents(other)
    assert a, "a comparison of nothing proves nothing"
    names = sorted(a.keys() ^ b.keys())
    for name in a.keys() & b.keys():
        same = torch.equal(a[name], b[name]) if isinstance(a[name], torch.Tensor) else a[name] == b[name]
        if not same:
            names.append(name)
    return names


def files(folder: Path) -> set[str]:
    """All files below a folder, by relative path."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def spy(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """Record what a function returns, without changing it."""
    original, results = getattr(module, name), []

    def watched(*arguments: Any, **keywords: Any) -> Any:
        results.append(original(*arguments, **keywords))
        return results[-1]

    monkeypatch.setattr(module, name, watched)
    return results


def final_models(run: Run) -> dict[str, torch.Tensor]:
    return {
        f"{client}/{name}": tensor
        for client in range(run.experiment.dealing.clients)
        for name, tensor in run.model(client).state_dict().items()
    }


def vouch(root: Path) -> None:
    """Make a run's index fit what lies there now, as if the run had written it so."""
    directory = RunDirectory(root)
    index = directory.index.get()
    assert index is not None
    found = directory.index.digests(directory.written())
    started = {name: found[name] for name in index.started if name in found}
    finished = None if index.finished is None else {name: found[name] for name in found.keys() - started.keys()}
    settings = directory.settings_file.read_text(encoding="utf-8")
    directory.index.write(replace(index, settings=settings, started=started, finished=finished))


class Memory:
    """What a server keeps per client, without a disk."""

    def __init__(self) -> None:
        self._tensors: dict[int, dict[str, torch.Tensor]] = {}

    def get(self, client: int) -> dict[str, torch.Tensor]:
        return dict(self._tensors.get(client, {}))

    def put(self, client: int, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors[client] = dict(tensors)

    def known(self) -> list[int]:
        return sorted(self._tensors)
