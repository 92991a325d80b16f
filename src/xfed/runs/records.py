"""What a run writes down as it goes: a row per round, and a row per evaluated round, client and exit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xfed.errors import InputError
from xfed.evaluation.summary import RoundAccuracy, weights_of
from xfed.files import whole
from xfed.protocol.words import Evaluated
from xfed_runtime.answers import ANSWERS, Answer


@dataclass(frozen=True)
class RoundRecord:
    """What one round moved and cost: sums over the clients that answered; `failed` did not, for these `reasons`."""

    round: int
    clients: int
    """Who was asked."""
    replies: int
    """Who answered, and whose answer was taken."""
    failed: tuple[int, ...]
    reasons: tuple[str, ...]
    unevaluated: tuple[int, ...]
    """Who failed in the evaluation after the round."""
    bytes_down: int
    """To all who were asked."""
    bytes_up: int
    macs: int
    tuning_macs: int
    """What models cost that were tuned before their evaluation; no part of `macs`."""
    loss: float
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0


SCHEMA = pa.schema(
    [
        ("round", pa.int64()),
        ("clients", pa.int64()),
        ("replies", pa.int64()),
        ("failed", pa.list_(pa.int64())),
        ("reasons", pa.list_(pa.string())),
        ("unevaluated", pa.list_(pa.int64())),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
        ("macs", pa.int64()),
        ("tuning_macs", pa.int64()),
        ("loss", pa.float64()),
        ("train_seconds", pa.float64()),
        ("evaluation_seconds", pa.float64()),
    ]
)


def write_rounds(path: Path, records: Sequence[RoundRecord]) -> None:
    """Write what all rounds so far moved and cost."""
    with whole(path) as temporary:
        pq.write_table(pa.Table.from_pylist([asdict(record) for record in records], SCHEMA), temporary)


def read_rounds(path: Path) -> list[RoundRecord]:
    """Read what the rounds moved and cost; nothing where there is no file yet."""
    if not path.is_file():
        return []
    table = read_table(path)
    _require_columns(path, table, SCHEMA.names)
    lists = ("failed", "reasons", "unevaluated")
    return [RoundRecord(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in table.to_pylist()]


def read_metrics(path: Path, answers: Answer | None = None) -> RoundAccuracy:
    """Read one evaluated round; by default with the answers that count in the run."""
    table = read_table(path)
    _require_columns(path, table, ("round", "client", "exit", "accuracy", "trained", "weight"))
    return round_accuracy(table, answers)


def read_weights(path: Path) -> dict[int, float]:
    """Read how many clients each one that was evaluated in a round stands for."""
    table = read_table(path)
    _require_columns(path, table, ("client", "weight"))
    return dict(zip(table["client"].to_pylist(), table["weight"].to_pylist(), strict=True))


def _require_columns(path: Path, table: pa.Table, names: Sequence[str]) -> None:
    lacking = [name for name in names if name not in table.column_names]
    if lacking or not len(table):
        raise InputError(f"{str(path)!r} is damaged: it lacks {', '.join(lacking) or 'any row'}")


def write_metrics(
    path: Path, round: int, evaluated: Sequence[Evaluated], trained: set[int], population: int, answers: Answer
) -> RoundAccuracy:
    """Write one evaluated round: a row per client and exit, exits counted from 1.

    `correct` and `accuracy` are those of the answers that count in this run; those of both kinds stand beside them.
    """
    has_trained = np.array([each.client in trained for each in evaluated])
    weights = weights_of(has_trained, len(trained), population)
    rows = [
        {
            "round": round,
            "client": each.client,
            "exit": index + 1,
            "samples": each.samples,
            "correct": correct,
            "accuracy": correct / each.samples,
            **{kind: each.correct[kind][index] / each.samples for kind in ANSWERS},
            "trained": bool(has_trained[number]),
            "weight": weights[number],
            **{name: values[index] for name, values in each.metrics.items()},
        }
        for number, each in enumerate(evaluated)
        for index, correct in enumerate(each.correct[answers])
    ]
    table = pa.Table.from_pylist(rows)
    with whole(path) as temporary:
        pq.write_table(table, temporary)
    return round_accuracy(table)


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file; a damaged one is told with its path."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None


def round_accuracy(table: pa.Table, answers: Answer | None = None) -> RoundAccuracy:
    """Arrange one evaluated round's rows as clients × exits; by default with the answers that count in the run."""
    column = answers or "accuracy"
    if column not in table.column_names:
        raise InputError(f"the run was evaluated before {column} answers were counted; run it again")
    exits = int(np.max(table["exit"].to_numpy()))
    return RoundAccuracy(
        round=int(table["round"][0].as_py()),
        accuracies=table[column].to_numpy().reshape(-1, exits),
        trained=table["trained"].to_numpy(zero_copy_only=False).reshape(-1, exits)[:, 0],
        weights=table["weight"].to_numpy().reshape(-1, exits)[:, 0],
    )
