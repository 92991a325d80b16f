"""What the page shows of a run, as plain values and packed arrays.

Of a confidence only its place among the page's thresholds is kept: how many of them it exceeds. So whatever threshold
is chosen on the page, each sample leaves exactly where the policy file would make it leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xfed.evaluation.traces import ExitTrace
from xfed.report.assumptions import teacher_weights
from xfed.report.page.packing import Packing
from xfed.report.rows import collect
from xfed.runs.directory import TraceOf
from xfed.runs.reader import Run
from xfed_runtime.answers import Answer

GRID = np.unique(
    np.round(np.concatenate([np.arange(1001) / 1000, 0.999 + np.arange(10) / 1e4, 0.9999 + np.arange(10) / 1e5]), 5)
)
"""Thresholds that can be chosen: steps of 0.001, finer towards 1, where confidences crowd."""


def codes(confidence: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Count the thresholds that a confidence exceeds; none where the network gave no number."""
    known = np.where(np.isnan(confidence), 0.0, confidence.astype(np.float64))
    return np.searchsorted(GRID, known, side="left").astype(np.uint16)


def content(runs: Sequence[Run], names: Sequence[str], packing: Packing, latencies: Sequence[float] | None) -> Any:
    """Describe runs, under names that tell them apart."""
    return {
        "grid": GRID.tolist(),
        "runs": [_run(run, name, packing, latencies) for run, name in zip(runs, names, strict=True)],
    }


def _run(run: Run, name: str, packing: Packing, latencies: Sequence[float] | None) -> dict[str, Any]:
    e = run.experiment
    (row,) = collect([run])
    summary, evaluations, records = run.summary(), run.evaluations(), run.records()
    last = summary.last.accuracies
    traces: dict[TraceOf, ExitTrace | None] = {of: run.trace(of) for of in ("test", "calibration")}
    kept = {of: trace for of, trace in traces.items() if trace is not None and len(trace)}
    exits = range(last.shape[1])
    return {
        "name": name,
        "folder": run.path.name,
        "method": e.method,
        "data": f"{e.dataset}, {e.dealing.in_words()}",
        "model": e.model,
        "clients": e.dealing.clients,
        "seed": e.seed,
        "rounds": e.training.rounds,
        "finished": run.finished,
        "majority": run.environment()["majority_baseline"]["mean"],
        "mean": summary.last.mean,
        "std": summary.last.std,
        "last5": summary.last5,
        "best": None if summary.best is None else summary.best.mean,
        "exits": summary.last.exits,
        "down": row.bytes_down,
        "up": row.bytes_up,
        "macs": row.macs,
        "clientState": row.client_state,
        "seconds": row.seconds,
        "costs": {"MACs": run.exit_macs} | ({} if latencies is None else {"ms": list(latencies)}),
        "perClient": [packing.add(last[:, j].astype(np.float32)) for j in exits],
        "evaluations": {
            "round": packing.add(np.array([each.round for each in evaluations], dtype=np.uint32)),
            "exits": [packing.add(np.array([x.exits[j] for x in evaluations], dtype=np.float32)) for j in exits],
        },
        "records": {
            name: packing.add(np.cumsum([getattr(record, name) for record in records]).astype(np.float32))
            for name in ("bytes_down", "bytes_up", "macs")
        },
        "answers": e.answering(),
        "traces": {of: _trace(trace, e.answering(), run.weights(of), packing) for of, trace in kept.items()},
        "classes": list(run.card.classes),
        "counts": _class_counts(list(kept.values()), len(run.card.classes), packing),
        "notes": _notes(run, packing),
    }


def _trace(trace: ExitTrace, answers: Answer, weights: Mapping[int, float], packing: Packing) -> dict[str, Any]:
    """Sort one kind of answers by client; the last exit needs no confidence, as it always answers."""
    order = np.argsort(trace.owners, kind="stable")
    clients, counts = np.unique(trace.owners, return_counts=True)
    signals = trace.signals(answers)[order]
    right = trace.right(answers)[order]
    mask = (right << np.arange(trace.exits, dtype=np.uint32)).sum(axis=1)
    return {
        "clients": packing.add(clients.astype(np.uint32)),
        "counts": packing.add(counts.astype(np.uint32)),
        "weights": packing.add(np.array([weights[client] for client in clients.tolist()], dtype=np.float32)),
        "right": packing.add(mask.astype(np.uint8 if trace.exits <= 8 else np.uint32)),
        "codes": [packing.add(codes(signals.confidence[:, j])) for j in range(trace.exits - 1)],
    }


def _class_counts(traces: Sequence[ExitTrace], classes: int, packing: Packing) -> dict[str, Any] | None:
    """Count labels by client, over the samples whose labels a run keeps."""
    if not traces:
        return None
    owners = np.concatenate([trace.owners for trace in traces])
    labels = np.concatenate([trace.labels for trace in traces])
    clients, rows = np.unique(owners, return_inverse=True)
    counts = np.zeros((len(clients), classes), dtype=np.uint32)
    np.add.at(counts, (rows, labels), 1)
    return {"clients": packing.add(clients.astype(np.uint32)), "counts": packing.add(counts.ravel())}


def _matrix(notes: Mapping[str, Tensor], packing: Packing) -> dict[str, Any]:
    weights, students, teachers = teacher_weights(notes)
    return {
        "weights": packing.add(np.rint(255 * weights).ravel().astype(np.uint8)),
        "students": packing.add(students.astype(np.uint32)),
        "teachers": packing.add(teachers.astype(np.uint32)),
    }


def _notes(run: Run, packing: Packing) -> dict[str, Any] | None:
    """Take over X-FED's notes: who taught whom, and which exits trained; weights in steps of 1 / 255."""
    found = [(round, run.notes(round)) for round in range(1, len(run.records()) + 1)]
    taught = [(r, n) for r, n in found if "teacher_weights" in n]
    selected = [(r, n["students"].numpy().mean(axis=0)) for r, n in found if "students" in n]
    if not (taught or selected):
        return None
    return {
        "matrices": [{"round": round, **_matrix(notes, packing)} for round, notes in taught],
        "selectedRounds": [round for round, _ in selected],
        "selected": packing.add(np.array([share for _, share in selected], dtype=np.float32).ravel()),
    }
