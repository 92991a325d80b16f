"""Runs in small form, for a repository: settings, what they cost, and every client's final accuracy. No models.

Text files, so that they can be read and compared without xfed: `settings.yaml`, `run.json`, `rounds.csv` (every
evaluated round) and `clients.csv` (the last one, by client).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xfed.errors import InputError
from xfed.experiment import Experiment, read_settings
from xfed.files import write_json, write_text
from xfed.runs.reader import Run
from xfed_runtime.answers import ANSWERS, Answer

Accuracies = NDArray[np.float64]
MACHINE = ("xfed", "code", "commit", "versions", "machine", "kernels", "started", "network", "majority_baseline")
"""What of the environment is kept."""


@dataclass(frozen=True)
class KeptRun:
    """A finished run as numbers: accuracies in [0, 1], those of the last evaluation as clients × exits."""

    name: str
    experiment: Experiment
    facts: Mapping[str, Any]
    rounds: Sequence[int]
    curves: Mapping[Answer, Accuracies]
    """Mean over clients, as evaluated rounds × exits."""
    clients: Mapping[Answer, Accuracies]
    trained: NDArray[np.bool_]

    @classmethod
    def of(cls, run: Run) -> KeptRun:
        """Reduce a finished run on disk."""
        run.require_finished()
        last = run.evaluations()[-1]
        if (last.weights != 1).any():
            raise InputError(
                f"run {str(run.path)!r} was evaluated on {len(last.weights)} of {round(last.weights.sum())} clients, "
                "but a run is kept with every client; run it with eval_clients at the number of clients"
            )
        environment, records = run.environment(), run.records()
        by_answer = {kind: run.evaluations(kind) for kind in ANSWERS}
        facts = {name: environment[name] for name in MACHINE} | {
            "bytes_down": float(np.mean([each.bytes_down / each.clients for each in records])),
            "bytes_up": float(np.mean([each.bytes_up / each.replies for each in records])),
            "macs": float(np.mean([each.macs / each.replies for each in records])),
            "tuning_macs": records[-1].tuning_macs,
            "held_out": run.held_out(),
            "seconds": sum(each.train_seconds + each.evaluation_seconds for each in records),
        }
        e = run.experiment
        return cls(
            f"{e.method}-seed{e.seed}-{environment['fingerprint'][:6]}",
            e.changed(out=None, data_dir=None, plugin=()),
            facts,
            [each.round for each in by_answer["own"]],
            {kind: np.array([each.exits for each in found]) for kind, found in by_answer.items()},
            {kind: found[-1].accuracies for kind, found in by_answer.items()},
            by_answer["own"][-1].trained,
        )

    @property
    def exits(self) -> int:
        """How many exits it has."""
        return int(self.clients["own"].shape[1])

    def accuracy(self, answers: Answer | None = None) -> Accuracies:
        """Give each client's accuracy, averaged over exits; by default with the answers that count in the run."""
        averaged: Accuracies = self.clients[answers or self.experiment.answering()].mean(axis=1)
        return averaged

    def write(self, folder: Path) -> Path:
        """Write the small form into a folder of its own."""
        home = folder / self.name
        write_text(home / "settings.yaml", self.experiment.to_yaml())
        write_json(home / "run.json", dict(self.facts))
        names = [f"{kind} {j + 1}" for kind in ANSWERS for j in range(self.exits)]
        rounds = np.concatenate([self.curves[kind] for kind in ANSWERS], axis=1)
        write_text(home / "rounds.csv", _table(["round", *names], zip(self.rounds, rounds, strict=True)))
        clients = np.concatenate([self.clients[kind] for kind in ANSWERS], axis=1)
        rows = zip(self.trained.astype(int).tolist(), clients, strict=True)
        write_text(home / "clients.csv", _table(["trained", *names], rows))
        return home

    @classmethod
    def read(cls, home: Path) -> KeptRun:
        """Read what `write` wrote."""
        try:
            experiment = Experiment.from_mapping(read_settings(home / "settings.yaml"))
            facts = json.loads((home / "run.json").read_text(encoding="utf-8"))
            rounds, curves = _read(home / "rounds.csv")
            trained, clients = _read(home / "clients.csv")
        except (OSError, ValueError) as error:
            raise InputError(f"kept run {str(home)!r} cannot be read: {' '.join(str(error).split())}") from None
        return cls(home.name, experiment, facts, [int(r) for r in rounds], curves, clients, trained.astype(bool))


def kept_runs(folder: Path) -> list[KeptRun]:
    """Read all kept runs of a folder, in the order of their names."""
    found = [KeptRun.read(path.parent) for path in sorted(folder.glob("*/run.json"))]
    if not found and (folder / "settings.yaml").is_file():
        raise InputError(
            f"{str(folder)!r} is a run; 'xfed paper keep {folder} --to FOLDER' keeps it in a folder of such"
        )
    if not found:
        raise InputError(f"{str(folder)!r} holds no kept runs; 'xfed paper keep RUN --to {folder}' puts some there")
    return found


def _table(header: Sequence[str], rows: Iterable[tuple[int, Accuracies]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([first, *(f"{value:.6f}" for value in values)] for first, values in rows)
    return text.getvalue()


def _read(path: Path) -> tuple[NDArray[np.float64], dict[Answer, Accuracies]]:
    with path.open(encoding="utf-8", newline="") as file:
        values = np.array([[float(cell) for cell in row] for row in list(csv.reader(file))[1:]])
    by_answer = np.split(values[:, 1:], len(ANSWERS), axis=1)
    return values[:, 0], dict(zip(ANSWERS, by_answer, strict=True))
