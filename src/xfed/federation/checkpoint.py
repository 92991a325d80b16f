"""Checkpoints: a round's server state and the index of client versions, whole or absent."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from xfed.errors import InputError
from xfed.files import read_tensors, sha256, write_json, write_tensors

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on after a round, besides the client versions it names."""

    round: int
    tensors: dict[str, Tensor]
    client_versions: dict[int, int]
    kept_versions: dict[int, int]


class Checkpoints:
    """The checkpoints of a run directory: two are kept."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def rounds(self) -> list[int]:
        """Give the rounds with a checkpoint, oldest first."""
        return sorted(int(path.name.removeprefix("round-")) for path in self.root.glob("round-*"))

    def _path(self, round: int) -> Path:
        return self.root / f"round-{round:06d}"

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint beside its place, then rename the folder into it and drop the oldest."""
        target = self._path(checkpoint.round)
        temporary = self.root / f".{target.name}.tmp"
        for leftover in (temporary, target):
            shutil.rmtree(leftover, ignore_errors=True)
        write_tensors(temporary / "server.safetensors", checkpoint.tensors)
        write_json(
            temporary / "checkpoint.json",
            {
                "round": checkpoint.round,
                "server_sha256": sha256(temporary / "server.safetensors"),
                "client_versions": checkpoint.client_versions,
                "kept_versions": checkpoint.kept_versions,
            },
        )
        os.rename(temporary, target)
        for round in self.rounds()[:-KEPT]:
            shutil.rmtree(self._path(round))

    def index(self, round: int) -> dict[str, Any]:
        """Read a checkpoint's index, or say what is wrong with it and what can be done."""
        path = self._path(round)
        others = [r for r in self.rounds() if r != round]
        advice = f"; --round {others[-1]} continues from the one before" if others else ""
        try:
            index: dict[str, Any] = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
            if sha256(path / "server.safetensors") != index["server_sha256"]:
                raise ValueError("server.safetensors is not what was written")
            for key in ("client_versions", "kept_versions"):
                index[key] = {int(client): int(version) for client, version in index[key].items()}
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"checkpoint {str(path)!r} is damaged: {error}{advice}") from None
        return index

    def read(self, round: int | None = None) -> Checkpoint:
        """Read a round's checkpoint, by default the newest."""
        rounds = self.rounds()
        if not rounds:
            raise InputError(f"{str(self.root)!r} holds no checkpoint")
        if round is not None and round not in rounds:
            raise InputError(f"no checkpoint of round {round}; there are: {', '.join(map(str, rounds))}")
        chosen = rounds[-1] if round is None else round
        index = self.index(chosen)
        tensors = read_tensors(self._path(chosen) / "server.safetensors")
        return Checkpoint(chosen, tensors, index["client_versions"], index["kept_versions"])
