"""What runs came to, a row per method: averaged over seeds, in plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xfed.report.naming import names_of
from xfed.runs.reader import Run


@dataclass(frozen=True)
class MethodRow:
    """One method, averaged over its seeds; where a method stands there twice, its name says what differs."""

    method: str
    seeds: int
    last: float
    std: float
    seed_std: float | None
    last5: float | None
    best: float | None
    exits: tuple[float, ...]
    exit_stds: tuple[float, ...]
    bytes_down: float
    bytes_up: float
    macs: float
    tuning: float
    """MACs per client of tuning before the final evaluation."""
    train_seconds: float
    """Seconds of training per round, without evaluation."""
    client_state: float | None
    server_state: float | None
    seconds: float
    trained_alone: float
    untrained_alone: float | None


def collect(runs: Sequence[Run]) -> list[MethodRow]:
    """Gather runs that differ by their seed alone, in the order in which they first appear."""
    groups = grouped(runs)
    return [_row(name, group) for name, group in zip(names_of([group[0] for group in groups]), groups, strict=True)]


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Put runs together that differ by their seed alone; of those that differ in nothing, the first one counts."""
    groups: dict[str, dict[int, Run]] = {}
    for run in runs:
        settings = run.experiment.model_dump_json(exclude={"seed": True, "place": True, "settings": {"engine"}})
        groups.setdefault(settings, {}).setdefault(run.experiment.seed, run)
    return [list(group.values()) for group in groups.values()]


def by_task(runs: Sequence[Run]) -> list[list[Run]]:
    """Put runs together that were evaluated on the same samples, dealt out alike: only their rows compare."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(f"{run.card.sha256} {run.experiment.dealing}", []).append(run)
    return list(groups.values())


def _row(method: str, runs: Sequence[Run]) -> MethodRow:
    summaries = [run.summary() for run in runs]
    records = [record for run in runs for record in run.records()]
    states = [run.state_bytes() for run in runs]
    seconds = sum(record.train_seconds + record.evaluation_seconds for record in records)
    return MethodRow(
        method=method,
        seeds=len(runs),
        last=mean(s.last.mean for s in summaries),
        std=mean(s.last.std for s in summaries),
        seed_std=float(np.std([s.last.mean for s in summaries], ddof=1)) if len(runs) > 1 else None,
        last5=_mean_or_none([s.last5 for s in summaries]),
        best=_mean_or_none([s.best.mean if s.best else None for s in summaries]),
        exits=tuple(np.mean([s.last.exits for s in summaries], axis=0).tolist()),
        exit_stds=tuple(np.mean([s.last.exit_stds for s in summaries], axis=0).tolist()),
        bytes_down=mean(r.bytes_down / r.clients for r in records),
        bytes_up=mean(r.bytes_up / r.replies for r in records),
        macs=mean(r.macs / r.replies for r in records),
        tuning=mean(run.records()[-1].tuning_macs / len(run.evaluations()[-1].trained) for run in runs),
        train_seconds=mean(r.train_seconds for r in records),
        client_state=_mean_or_none([client for client, _ in states]),
        server_state=_mean_or_none([server for _, server in states]),
        seconds=seconds / len(runs),
        trained_alone=mean(only.mean for s in summaries if (only := s.last.only(trained=True))),
        untrained_alone=_mean_or_none([only.mean if (only := s.last.only(trained=False)) else None for s in summaries]),
    )


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return mean(present) if present else None


def mean(values: Iterable[float]) -> float:
    """Average plain numbers."""
    return float(np.mean(list(values)))
