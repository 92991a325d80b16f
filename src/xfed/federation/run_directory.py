"""A run on disk: everything after training reads this folder and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xfed.data.dealing.partition import Partition
from xfed.errors import InputError
from xfed.evaluation.accuracy import Evaluation
from xfed.evaluation.summary import RoundAccuracy, weights_of
from xfed.evaluation.traces import ExitTrace, TraceOf, trace_path
from xfed.federation.checkpoint import Checkpoints
from xfed.files import whole, write_json, write_text


@dataclass(frozen=True)
class RoundRecord:
    """What one round moved and cost; sums over the round's clients."""

    round: int
    clients: int
    bytes_down: int
    bytes_up: int
    macs: int
    loss: float
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0


class RunDirectory:
    """Names, writes and reads the files of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoints = Checkpoints(root / "checkpoints")
        self.client_states = root / "state" / "clients"
        self.server_states = root / "state" / "server"
        self.models = root / "models"
        self.plugins = root / "plugins"
        self.partition = root / "partition.safetensors"
        self._settings = root / "settings.yaml"
        self._environment = root / "environment.json"
        self._rounds = root / "rounds.parquet"
        self._metrics = root / "metrics"
        self._finished = root / "finished.json"

    @classmethod
    def open(cls, root: Path) -> RunDirectory:
        """Open an existing run."""
        run = cls(root)
        if not run._settings.is_file():
            raise InputError(f"{str(root)!r} is not a run directory (it has no settings.yaml)")
        return run

    def refuse_existing(self) -> None:
        """Make sure that nothing would be overwritten."""
        if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
            raise InputError(
                f"run directory {str(self.root)!r} exists already; give another --out, or continue it with "
                f"'xfed resume {self.root}'"
            )

    def create(self, settings: str, environment: dict[str, Any], partition: Partition) -> Partition:
        """Start a new run, and give the partition as it lies there for all processes to map.

        Settings are written last, so a folder that has them is complete.
        """
        write_json(self._environment, environment)
        saved = partition.save(self.partition)
        write_text(self._settings, settings)
        return saved

    def settings(self) -> str:
        """Read the resolved settings (YAML)."""
        return self._settings.read_text(encoding="utf-8")

    def environment(self) -> dict[str, Any]:
        """Read versions, checksums and what else was true when the run started."""
        environment: dict[str, Any] = json.loads(self._environment.read_text(encoding="utf-8"))
        return environment

    def write_rounds(self, records: Sequence[RoundRecord]) -> None:
        """Write what all rounds so far moved and cost."""
        with whole(self._rounds) as temporary:
            pq.write_table(pa.Table.from_pylist([asdict(record) for record in records]), temporary)

    def rounds(self) -> list[RoundRecord]:
        """Read what the rounds moved and cost."""
        if not self._rounds.is_file():
            return []
        return [RoundRecord(**row) for row in pq.read_table(self._rounds).to_pylist()]

    def write_evaluation(
        self, round: int, evaluations: Sequence[Evaluation], trained: set[int], population: int
    ) -> RoundAccuracy:
        """Write one evaluated round: a row per client and exit (exits counted from 1), and the exits' traces."""
        has_trained = np.array([e.client in trained for e in evaluations])
        weights = weights_of(has_trained, len(trained), population)
        rows = [
            {
                "round": round,
                "client": e.client,
                "exit": index + 1,
                "samples": e.samples,
                "correct": correct,
                "accuracy": correct / e.samples,
                "trained": bool(has_trained[number]),
                "weight": weights[number],
            }
            for number, e in enumerate(evaluations)
            for index, correct in enumerate(e.correct)
        ]
        table = pa.Table.from_pylist(rows)
        with whole(self._metrics / f"round-{round:06d}.parquet") as temporary:
            pq.write_table(table, temporary)
        self._write_trace("test", round, [e.test for e in evaluations])
        self._write_trace("calibration", round, [e.calibration for e in evaluations])
        return _round_accuracy(table)

    def _write_trace(self, of: TraceOf, round: int, traces: Sequence[ExitTrace | None]) -> None:
        present = [trace for trace in traces if trace]
        if present:
            ExitTrace.concatenate(present).write(trace_path(self.root, of, round))

    def evaluations(self, until: int | None = None) -> list[RoundAccuracy]:
        """Read the evaluated rounds, in order."""
        paths = sorted(self._metrics.glob("round-*.parquet"))
        found = [_round_accuracy(pq.read_table(path)) for path in paths]
        return [accuracy for accuracy in found if until is None or accuracy.round <= until]

    def finish(self, summary: dict[str, Any]) -> None:
        """Mark the run as complete."""
        write_json(self._finished, summary)

    @property
    def finished(self) -> bool:
        """Tell whether the run came to its end."""
        return self._finished.is_file()

    def summary(self) -> dict[str, Any]:
        """Read what was noted at the end of the run."""
        summary: dict[str, Any] = json.loads(self._finished.read_text(encoding="utf-8"))
        return summary


def _round_accuracy(table: pa.Table) -> RoundAccuracy:
    exits = int(np.max(table["exit"].to_numpy()))
    return RoundAccuracy(
        round=int(table["round"][0].as_py()),
        accuracies=table["accuracy"].to_numpy().reshape(-1, exits),
        trained=table["trained"].to_numpy(zero_copy_only=False).reshape(-1, exits)[:, 0],
        weights=table["weight"].to_numpy().reshape(-1, exits)[:, 0],
    )
