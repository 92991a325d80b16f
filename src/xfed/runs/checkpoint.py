"""Checkpoints: a round's server state and the index of client versions, whole or absent."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from xfed.errors import InputError
from xfed.files import read_tensors, sha256, write_json, write_tensors

log = logging.getLogger("xfed")
KEPT = 2
SERVER, VERSIONS = "server.safetensors", "versions.safetensors"


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
        numbers = (path.name.removeprefix("round-") for path in self.root.glob("round-*"))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def _path(self, round: int) -> Path:
        return self.root / f"round-{round:06d}"

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint beside its place, then rename the folder into it and drop the oldest."""
        target = self._path(checkpoint.round)
        temporary = self.root / f".{target.name}.tmp"
        for leftover in (temporary, target):
            shutil.rmtree(leftover, ignore_errors=True)
        write_tensors(temporary / SERVER, checkpoint.tensors)
        indexes = {"clients": _table(checkpoint.client_versions), "kept": _table(checkpoint.kept_versions)}
        write_tensors(temporary / VERSIONS, indexes)
        checksums = {name: sha256(temporary / name) for name in (SERVER, VERSIONS)}
        write_json(temporary / "checkpoint.json", {"round": checkpoint.round, "sha256": checksums})
        os.rename(temporary, target)
        for round in self.rounds()[:-KEPT]:
            self.drop(round)

    def drop(self, round: int) -> None:
        """Delete a round's checkpoint: out of sight first, so that no half of one is ever taken for a whole."""
        gone = self.root / f".{self._path(round).name}.tmp"
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(self._path(round), gone)
        shutil.rmtree(gone)

    def read(self, round: int | None = None) -> Checkpoint:
        """Read a round's checkpoint; by default the newest, or where that is damaged the one before it."""
        rounds = self.rounds()
        if not rounds:
            raise InputError(f"{str(self.root)!r} holds no checkpoint")
        if round is not None and round not in rounds:
            raise InputError(f"no checkpoint of round {round}; there are: {', '.join(map(str, rounds))}")
        if round is not None:
            others = [r for r in rounds if r != round]
            advice = f"; --round {others[-1]} continues from another one" if others else ""
            return self._read(round, advice)
        *earlier, newest = rounds
        try:
            return self._read(newest)
        except InputError as error:
            if not earlier:
                raise
            found = self._read(earlier[-1], f", and so is the newer one: {error}")
            log.warning("%s; going on from the one before it, of round %d", error, earlier[-1])
            return found

    def _read(self, round: int, besides: str = "") -> Checkpoint:
        path = self._path(round)
        try:
            noted = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
            for name in (SERVER, VERSIONS):
                if sha256(path / name) != noted["sha256"][name]:
                    raise ValueError(f"{name} is not what was written")
            versions = {name: dict(table.T.tolist()) for name, table in read_tensors(path / VERSIONS).items()}
            return Checkpoint(round, read_tensors(path / SERVER), versions["clients"], versions["kept"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise InputError(f"checkpoint {str(path)!r} is damaged: {error}{besides}") from None


def _table(versions: Mapping[int, int]) -> Tensor:
    """Give an index as two rows of numbers, clients and versions: very many entries are written fast."""
    table = np.empty((2, len(versions)), dtype=np.int32)
    table[0] = np.fromiter(versions.keys(), np.int32, len(versions))
    table[1] = np.fromiter(versions.values(), np.int32, len(versions))
    return torch.from_numpy(table)
