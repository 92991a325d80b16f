"""What every adapter shares: the work to do, the network, and a clock. Imports nothing but numpy and torch.

An adapter is started as `python ADAPTER.py FOLDER REPOSITORY`. It finds `work.npz` in the folder, trains FedAvg on the
given clients, cohorts and samples with the simulator's own loop, and leaves `result.json` beside it. Round 1 warms up.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

STAGES = 3
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """The contest: images (uint8, N × C × H × W), labels, who holds which samples, and who trains in which round."""

    folder: Path
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    train: list[NDArray[np.int64]]
    cohorts: NDArray[np.int64]
    settings: dict[str, Any]

    def save(self) -> None:
        """Write the work for adapters."""
        sizes = [len(rows) for rows in self.train]
        np.savez(
            self.folder / "work.npz",
            images=self.images,
            labels=self.labels,
            rows=np.concatenate(self.train),
            sizes=sizes,
            cohorts=self.cohorts,
            settings=json.dumps(self.settings),
        )

    @classmethod
    def load(cls, folder: Path) -> Work:
        """Read the work."""
        with np.load(folder / "work.npz") as file:
            train = np.split(file["rows"], np.cumsum(file["sizes"])[:-1])
            settings = json.loads(str(file["settings"]))
            return cls(folder, file["images"], file["labels"], train, file["cohorts"], settings)

    def inputs(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.float32]:
        """Give samples as the network takes them, in [−1, 1]."""
        return (self.images[rows].astype(np.float32) / 255 - 0.5) / 0.5

    def sgd(self) -> Any:
        """Give the optimizer, which still wants parameters and a rate."""
        return partial(torch.optim.SGD, momentum=self.settings["momentum"], weight_decay=self.settings["weight_decay"])

    def write_npz_per_client(self, name: str) -> Path:
        """Lay the samples out as PFLlib reads them, from a working directory beside `dataset`; give that directory."""
        for part in ("train", "test"):
            folder = self.folder / "dataset" / name / part
            folder.mkdir(parents=True)
            for client, rows in enumerate(self.train):
                chosen = rows if part == "train" else rows[:1]
                np.savez_compressed(folder / f"{client}.npz", data={"x": self.inputs(chosen), "y": self.labels[chosen]})
        (self.folder / "system").mkdir()
        return self.folder / "system"


class Network(nn.Module):
    """Three convolutions, an exit after each; counts the samples that it trains on."""

    trained = 0

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(c, width, 3) for c in [3, *[width] * (STAGES - 1)])
        self.exits = nn.ModuleList(nn.Linear(width, classes) for _ in range(STAGES))

    @classmethod
    def of(cls, work: Work) -> Network:
        """Build the network of a contest."""
        torch.manual_seed(1)
        return cls(work.settings["width"], int(work.labels.max()) + 1)

    def forward(self, maps: Tensor) -> list[Tensor]:
        """Give the logits of all exits."""
        if self.training:
            Network.trained += len(maps)
        logits = []
        for convolution, head in zip(self.convolutions, self.exits, strict=True):
            maps = F.max_pool2d(F.relu(convolution(maps)), 2)
            logits.append(head(maps.mean((2, 3))))
        return logits


def joint_loss(logits: list[Tensor], labels: Tensor) -> Tensor:
    """Average the exits' cross-entropies."""
    return torch.stack([F.cross_entropy(z, labels) for z in logits]).sum() / STAGES


class Clock:
    """Notes time, CPU time and trained samples when training begins and after every round."""

    def __init__(self) -> None:
        self._notes: list[tuple[float, float, int]] = []
        self._start = 0.0

    def note(self, samples: int | None = None) -> None:
        """Take a note: before the first round, and after each."""
        if not self._notes:
            self._start = age()
        self._notes.append((perf_counter(), cpu_seconds(os.getpid()), Network.trained if samples is None else samples))

    def write(self, folder: Path) -> None:
        """Leave the result; the first round does not count."""
        seconds, cpu, samples = (b - a for a, b in zip(self._notes[1], self._notes[-1], strict=True))
        result = {"start": self._start, "seconds": seconds, "cpu": cpu, "samples": samples}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def age() -> float:
    """Tell how long ago this process began, imports included."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) - int(fields[19]) / TICKS


def cpu_seconds(process: int) -> float:
    """Add up the CPU time of a process and all its descendants, those that have ended and were waited for included."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").glob("*/children")
            for child in task.read_text(encoding="ascii").split()
        ]
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS + sum(map(cpu_seconds, children))


def arguments() -> tuple[Work, Path]:
    """Read the command line of an adapter."""
    return Work.load(Path(sys.argv[1])), Path(sys.argv[2])
