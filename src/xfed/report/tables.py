"""What runs came to, as a table: on the terminal, in Markdown and as CSV from the same cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from xfed.runs.reader import Run

CAPTION = (
    "Accuracy in % on each client's own test samples: averaged over exits, then mean ± std over clients. "
    "last: final evaluation (exits too); last5: mean of the last five evaluated rounds; best: best evaluated round. "
    "down, up: bytes of the messages of one client in one round; GMAC: what it computes then; client, server: state "
    "that one client and the server keep between rounds; time: rounds and evaluations together."
)


@dataclass(frozen=True)
class MethodRow:
    """One method, averaged over its seeds."""

    method: str
    seeds: int
    last: float
    std: float
    seed_std: float
    last5: float | None
    best: float | None
    exits: tuple[float, ...]
    exit_stds: tuple[float, ...]
    bytes_down: float
    bytes_up: float
    macs: float
    tuning: float
    """MACs per client of tuning before the final evaluation."""
    client_state: float | None
    server_state: float
    seconds: float
    untrained: float
    """Clients that never took part, of those evaluated."""
    trained_alone: float
    untrained_alone: float | None


def collect(runs: Sequence[Run]) -> list[MethodRow]:
    """Gather runs by method, in the order in which methods first appear."""
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.experiment.method, []).append(run)
    return [_row(method, group) for method, group in by_method.items()]


def _row(method: str, runs: Sequence[Run]) -> MethodRow:
    summaries = [run.summary() for run in runs]
    records = [record for run in runs for record in run.records()]
    states = [run.state_bytes() for run in runs]
    seconds = sum(record.train_seconds + record.evaluation_seconds for record in records)
    return MethodRow(
        method=method,
        seeds=len(runs),
        last=_mean(s.last.mean for s in summaries),
        std=_mean(s.last.std for s in summaries),
        seed_std=float(np.std([s.last.mean for s in summaries], ddof=1)) if len(runs) > 1 else 0.0,
        last5=_mean_or_none([s.last5 for s in summaries]),
        best=_mean_or_none([s.best.mean if s.best else None for s in summaries]),
        exits=tuple(np.mean([s.last.exits for s in summaries], axis=0).tolist()),
        exit_stds=tuple(np.mean([s.last.exit_stds for s in summaries], axis=0).tolist()),
        bytes_down=_mean(r.bytes_down / r.clients for r in records),
        bytes_up=_mean(r.bytes_up / r.replies for r in records),
        macs=_mean(r.macs / r.replies for r in records),
        tuning=_mean(run.records()[-1].tuning_macs / len(run.evaluations()[-1].trained) for run in runs),
        client_state=_mean_or_none([client for client, _ in states]),
        server_state=_mean(server for _, server in states),
        seconds=seconds / len(runs),
        untrained=_mean(float((~s.last.trained).sum()) for s in summaries),
        trained_alone=_mean(only.mean for s in summaries if (only := s.last.only(trained=True))),
        untrained_alone=_mean_or_none([only.mean if (only := s.last.only(trained=False)) else None for s in summaries]),
    )


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return _mean(present) if present else None


def _mean(values: object) -> float:
    return float(np.mean(list(values)))  # type: ignore[call-overload]


def _size(count: float) -> str:
    """Write bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def cells(rows: Sequence[MethodRow], runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Lay out header and cells; the last line is the trivial answer, for comparison."""
    several = any(row.seeds > 1 for row in rows)
    exits = max(len(row.exits) for row in rows)
    apart = any(row.untrained_alone is not None for row in rows)
    header = ["method", "last", *(["± seeds"] if several else []), *(["trained", "never"] if apart else [])]
    header += ["last5", "best"]
    header += [f"exit {j + 1}" for j in range(exits)] + ["down", "up", "GMAC", "client", "server", "time"]
    body = []
    for row in rows:
        line = [row.method, f"{100 * row.last:.2f} ± {100 * row.std:.2f}"]
        line += [f"± {100 * row.seed_std:.2f}"] if several else []
        groups = (row.trained_alone, row.untrained_alone) if apart else ()
        line += ["–" if value is None else f"{100 * value:.2f}" for value in (*groups, row.last5, row.best)]
        line += [f"{100 * value:.2f}" for value in row.exits] + [""] * (exits - len(row.exits))
        line += [_size(row.bytes_down), _size(row.bytes_up), f"{row.macs / 1e9:.2f}"]
        line += ["–" if row.client_state is None else _size(row.client_state), _size(row.server_state)]
        line += [f"{row.seconds:.1f} s"]
        body.append(line)
    baselines = [run.environment()["majority_baseline"] for run in runs]
    mean, std = (_mean(baseline[key] for baseline in baselines) for key in ("mean", "std"))
    trivial = ["majority class", f"{100 * mean:.2f} ± {100 * std:.2f}"]
    body.append(trivial + [""] * (len(header) - len(trivial)))
    return header, body


def notes(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Say what the table shows and which runs it rests on."""
    e = runs[0].experiment
    t, clients = e.training, e.dealing.clients
    seeds = ", ".join(str(seed) for seed in sorted({run.experiment.seed for run in runs}))
    text = (
        f"{e.dataset}, {e.model}, exits: {e.exits}; {clients} clients, {e.cohort_size} per round, "
        f"{e.dealing.in_words()}, {t.rounds} rounds, {t.epochs} epochs, batch {t.batch_size}, "
        f"rate {t.lr:g} × {t.lr_decay:g} per round, seed {seeds}. "
    )
    unseen = max(row.untrained for row in rows)
    if unseen:
        text += f"Up to {unseen:g} evaluated clients never took part; trained, never: `last` of those that did or not. "
    evaluated = max(len(run.summary().last.trained) for run in runs)
    if evaluated < clients:
        text += f"Evaluated: a sample of {evaluated:,} clients, each counting for the clients it stands for. "
    dropped = sum(len(record.failed) for run in runs for record in run.records())
    if dropped:
        text += f"{dropped} answers were missing: those clients were left out of their rounds. "
    tuned = {row.method: row.tuning for row in rows if row.tuning}
    if tuned:
        costs = ", ".join(f"{method} {macs / 1e9:.2f}" for method, macs in tuned.items())
        text += f"Tuning before the final evaluation cost each client, in GMAC beside the column's: {costs}. "
    codes = {run.environment()["code"] for run in runs}
    if len(codes) > 1:
        by_code = ", ".join(f"{code}: {_names(runs, code)}" for code in sorted(codes))
        text += f"The runs are of different code ({by_code}). "
    return text + CAPTION


def _names(runs: Sequence[Run], code: str) -> str:
    return " ".join(dict.fromkeys(run.experiment.method for run in runs if run.environment()["code"] == code))


def print_whole(table: Table) -> None:
    """Print a table without cutting any cell: where it is wider than the terminal, lines run over."""
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, needed)).print(table)


def show(rows: Sequence[MethodRow], runs: Sequence[Run]) -> None:
    """Print the table to the terminal."""
    header, body = cells(rows, runs)
    table = Table()
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for number, line in enumerate(body):
        table.add_row(*line, style="dim" if number == len(body) - 1 else None)
    print_whole(table)
    Console().print(notes(rows, runs), highlight=False, style="dim")


def markdown(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Write the table as Markdown."""
    header, body = cells(rows, runs)
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = ["| " + " | ".join(line) + " |" for line in (header, rule, *body)]
    return "\n".join([*lines, "", notes(rows, runs), ""])


def comma_separated(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Write the table as CSV."""
    text = io.StringIO()
    csv.writer(text).writerows([cells(rows, runs)[0], *cells(rows, runs)[1]])
    return text.getvalue()
