"""An engine whose clients live in another process with a folder of its own: only bytes pass, and states stay there.

Run as a program, this module is the far side: it reads frames from its standard input and answers on standard output.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.federation.carrying import keep_states, with_states
from xfed.federation.host import Host, simulated
from xfed.protocol.engine import Engine, Job
from xfed.protocol.message import pack, unpack
from xfed.protocol.words import (
    Briefing,
    Evaluated,
    EvaluateTask,
    Failed,
    Task,
    Trained,
    TrainTask,
    from_bytes,
    to_bytes,
)
from xfed.runs.store import ClientStore


def send(stream: BinaryIO, data: bytes) -> None:
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> bytes:
    header = stream.read(8)
    return stream.read(struct.unpack("<Q", header)[0]) if header else b""


class FarEngine(Engine):
    """Sends words to another process; knows no folder of it."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def open(self, job: Job) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(self.root)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.far"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.root,
            env=environment,
        )
        assert self.process.stdin is not None
        send(self.process.stdin, to_bytes([job.briefing]))
        send(self.process.stdin, job.dataset.to_bytes())
        arrays = [torch.from_numpy(job.partition.indices.copy()), torch.from_numpy(job.partition.bounds.copy())]
        send(self.process.stdin, pack({}, arrays))

    def _ask(self, tasks: Sequence[Task]) -> list[Trained | Evaluated | Failed]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        send(self.process.stdin, to_bytes(tasks))
        words = from_bytes(receive(self.process.stdout))
        return [word for word in words if isinstance(word, Trained | Evaluated | Failed)]

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        for task in tasks:
            yield from self._ask([task])  # type: ignore[misc]

    def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
        for group in groups:
            yield from self._ask(group)  # type: ignore[misc]

    def close(self) -> None:
        self.process.communicate()


def main() -> None:
    """Be the far side, in the current folder."""
    torch.set_num_threads(1)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    [briefing] = from_bytes(receive(incoming))
    assert isinstance(briefing, Briefing)
    dataset = Dataset.from_bytes(receive(incoming), DataCard.from_json(briefing.card).sha256)
    _, (indices, bounds) = unpack(receive(incoming))
    partition = Partition(indices.numpy(), bounds.numpy())
    host = Host.of(briefing, simulated(dataset, partition, "cpu"), "cpu")
    states = ClientStore(Path("states"))
    while data := receive(incoming):
        tasks = [word for word in from_bytes(data) if isinstance(word, TrainTask | EvaluateTask)]
        results = keep_states(host.answer(with_states(tasks, states)), states)
        send(outgoing, to_bytes(results))


if __name__ == "__main__":
    main()
