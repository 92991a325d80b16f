"""What runs came to, as a table: on the terminal, in Markdown and as CSV from the same cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from xfed.running import Run

CAPTION = (
    "Accuracy in % on each client's own test samples: averaged over exits, then mean ± std over clients. "
    "last: final evaluation (exits too); last5: mean of the last five evaluated rounds; best: best evaluated round. "
    "Traffic and MACs: per round, all participants together, both directions."
)


@dataclass(frozen=True)
class Row:
    """One method, averaged over its seeds."""

    method: str
    seeds: int
    last: float
    std: float
    seed_std: float
    last5: float
    best: float
    exits: tuple[float, ...]
    exit_stds: tuple[float, ...]
    bytes_per_round: float
    macs_per_round: float
    seconds: float
    untrained: float


def collect(runs: Sequence[Run]) -> list[Row]:
    """Gather runs by method, in the order in which methods first appear."""
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.experiment.method, []).append(run)
    return [_row(method, group) for method, group in by_method.items()]


def _row(method: str, runs: Sequence[Run]) -> Row:
    summaries = [run.summary() for run in runs]
    records = [record for run in runs for record in run.rounds()]
    seconds = sum(record.train_seconds + record.evaluation_seconds for record in records)
    return Row(
        method=method,
        seeds=len(runs),
        last=_mean(s.last.mean for s in summaries),
        std=_mean(s.last.std for s in summaries),
        seed_std=float(np.std([s.last.mean for s in summaries], ddof=1)) if len(runs) > 1 else 0.0,
        last5=_mean(s.last5 for s in summaries),
        best=_mean(s.best.mean for s in summaries),
        exits=tuple(np.mean([s.last.exits for s in summaries], axis=0).tolist()),
        exit_stds=tuple(np.mean([s.last.exit_stds for s in summaries], axis=0).tolist()),
        bytes_per_round=_mean(r.bytes_down + r.bytes_up for r in records),
        macs_per_round=_mean(r.macs for r in records),
        seconds=seconds / len(runs),
        untrained=_mean(float((~s.last.trained).sum()) for s in summaries),
    )


def _mean(values: object) -> float:
    return float(np.mean(list(values)))  # type: ignore[call-overload]


def cells(rows: Sequence[Row], runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Lay out header and cells; the last line is the trivial answer, for comparison."""
    several = any(row.seeds > 1 for row in rows)
    exits = max(len(row.exits) for row in rows)
    header = ["method", "last", *(["± seeds"] if several else []), "last5", "best"]
    header += [f"exit {j + 1}" for j in range(exits)] + ["MB/round", "GMAC/round", "time"]
    body = []
    for row in rows:
        line = [row.method, f"{100 * row.last:.2f} ± {100 * row.std:.2f}"]
        line += [f"± {100 * row.seed_std:.2f}"] if several else []
        line += [f"{100 * row.last5:.2f}", f"{100 * row.best:.2f}"]
        line += [f"{100 * value:.2f}" for value in row.exits] + [""] * (exits - len(row.exits))
        line += [
            f"{row.bytes_per_round / 1e6:.3f}",
            f"{row.macs_per_round / 1e9:.2f}",
            f"{row.seconds:.1f} s",
        ]
        body.append(line)
    baselines = [run.environment()["majority_baseline"] for run in runs]
    mean, std = (_mean(baseline[key] for baseline in baselines) for key in ("mean", "std"))
    trivial = ["majority class", f"{100 * mean:.2f} ± {100 * std:.2f}"]
    body.append(trivial + [""] * (len(header) - len(trivial)))
    return header, body


def notes(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """Say what the table shows and which runs it rests on."""
    e = runs[0].experiment
    seeds = ", ".join(str(seed) for seed in sorted({run.experiment.seed for run in runs}))
    text = (
        f"{e.dataset}, {e.model}, exits: {e.exits}; {e.clients} clients, {e.cohort_size} per round, Dir({e.alpha}), "
        f"{e.rounds} rounds, {e.epochs} epochs, batch {e.batch_size}, rate {e.lr:g} × {e.lr_decay:g} per round, "
        f"seed {seeds}. "
    )
    unseen = max(row.untrained for row in rows)
    if unseen:
        text += f"Up to {unseen:g} clients never took part and are evaluated as initialised. "
    return text + CAPTION


def show(rows: Sequence[Row], runs: Sequence[Run]) -> None:
    """Print the table to the terminal, never cut: where it is too wide, lines run over."""
    header, body = cells(rows, runs)
    table = Table()
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for number, line in enumerate(body):
        table.add_row(*line, style="dim" if number == len(body) - 1 else None)
    console = Console()
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(console.width, needed)).print(table)
    console.print(notes(rows, runs), highlight=False, style="dim")


def markdown(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """Write the table as Markdown."""
    header, body = cells(rows, runs)
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = ["| " + " | ".join(line) + " |" for line in (header, rule, *body)]
    return "\n".join([*lines, "", notes(rows, runs), ""])


def comma_separated(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """Write the table as CSV."""
    text = io.StringIO()
    csv.writer(text).writerows([cells(rows, runs)[0], *cells(rows, runs)[1]])
    return text.getvalue()
