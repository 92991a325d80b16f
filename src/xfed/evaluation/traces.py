"""Exit traces: what every exit would have answered for every sample, and how sure it was.

Sweeps, calibration, risk bounds and figures are computed from traces, without running a network again. Signals are
kept in float32: float16 would move samples across a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from xfed.errors import InputError
from xfed.files import whole
from xfed.protocol.message import Message
from xfed_runtime.answers import ANSWERS, Answer, Answering, AnySignals, Signals, signals

Integers = NDArray[np.int64]

SIGNAL_TYPES = {
    "prediction": (pa.int32(), np.int64),
    "confidence": (pa.float32(), np.float32),
    "margin": (pa.float32(), np.float32),
    "entropy": (pa.float32(), np.float32),
}


@dataclass(frozen=True)
class ExitTrace:
    """Samples with their owners and labels, and for both kinds of answers the signals of all exits (n × m)."""

    owners: Integers
    samples: Integers
    """Where each sample is in the pooled data set."""
    labels: Integers
    own: Signals
    running: Signals

    @classmethod
    def of(cls, client: int, samples: Integers, labels: Integers, logits: Sequence[NDArray[Any]]) -> ExitTrace:
        """Make the trace of one client's samples from the logits (n × classes) of its exits, in order."""
        by_answer = {}
        for kind in ANSWERS:
            answering = Answering(kind)
            by_answer[kind] = _side_by_side([signals(answering.add(each)) for each in logits])
        owners = np.full(len(labels), client, dtype=np.int64)
        return cls(owners, samples.astype(np.int64), labels.astype(np.int64), by_answer["own"], by_answer["running"])

    @classmethod
    def concatenate(cls, traces: Sequence[ExitTrace]) -> ExitTrace:
        """Put traces one after another."""
        return cls(
            np.concatenate([trace.owners for trace in traces]),
            np.concatenate([trace.samples for trace in traces]),
            np.concatenate([trace.labels for trace in traces]),
            *(_one_after_another([trace.signals(kind) for trace in traces]) for kind in ANSWERS),
        )

    def to_message(self) -> Message:
        """Give the trace of one client as named tensors."""
        tensors = {"samples": torch.from_numpy(self.samples), "labels": torch.from_numpy(self.labels)}
        for kind in ANSWERS:
            for name in SIGNAL_TYPES:
                tensors[f"{kind}.{name}"] = torch.from_numpy(getattr(self.signals(kind), name))
        return Message(tensors)

    @classmethod
    def from_message(cls, client: int, message: Message) -> ExitTrace:
        """Take what `to_message` of this client's trace gave."""
        arrays = {name: tensor.numpy() for name, tensor in message.tensors.items()}
        by_answer = [Signals(*(arrays[f"{kind}.{name}"] for name in SIGNAL_TYPES)) for kind in ANSWERS]
        owners = np.full(len(arrays["labels"]), client, dtype=np.int64)
        return cls(owners, arrays["samples"], arrays["labels"], *by_answer)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def exits(self) -> int:
        """Number of exits."""
        return int(self.own.prediction.shape[1])

    @property
    def clients(self) -> list[int]:
        """Whose samples there are, in rising order."""
        return [int(client) for client in np.unique(self.owners)]

    def of_client(self, client: int) -> ExitTrace:
        """Restrict to one client's samples."""
        return self._rows(np.flatnonzero(self.owners == client))

    def by_client(self) -> dict[int, ExitTrace]:
        """Take all clients apart, in one go."""
        order = np.argsort(self.owners, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(self.owners[order])) + 1)
        return {int(self.owners[rows[0]]): self._rows(rows) for rows in groups if len(rows)}

    def _rows(self, rows: Integers) -> ExitTrace:
        return ExitTrace(self.owners[rows], self.samples[rows], self.labels[rows], self.own[rows], self.running[rows])

    def signals(self, answer: Answer) -> Signals:
        """Give the signals of one kind of answer."""
        return self.own if answer == "own" else self.running

    def right(self, answer: Answer) -> NDArray[np.bool_]:
        """Tell which exits (columns) answered which samples (rows) as their labels say."""
        correct: NDArray[np.bool_] = self.signals(answer).prediction == self.labels[:, None]
        return correct

    def write(self, path: Path) -> None:
        """Write a Parquet file: client, sample, label, and a list over exits for each signal, as `own.confidence`."""
        columns: list[pa.Array] = [pa.array(values) for values in (self.owners, self.samples, self.labels)]
        for kind in ANSWERS:
            for name, (stored, _) in SIGNAL_TYPES.items():
                values = pa.array(getattr(self.signals(kind), name).ravel(), stored)
                columns.append(pa.FixedSizeListArray.from_arrays(values, self.exits))
        types = _types(self.exits)
        table = pa.table(dict(zip(types, columns, strict=True))).cast(pa.schema(list(types.items())))
        with whole(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> ExitTrace:
        """Read and check a trace file."""
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"exit trace {str(path)!r} cannot be read: {str(error).splitlines()[0]}") from None
        try:
            _check_columns(table)
            owners, samples, labels = (_integers(table, name) for name in ("client", "sample", "label"))
            return cls(owners, samples, labels, *(_signals(table, kind) for kind in ANSWERS))
        except ValueError as error:
            raise InputError(f"exit trace {str(path)!r} is damaged: {error}") from None


def _side_by_side(exits: Sequence[AnySignals]) -> Signals:
    return Signals(*(np.stack([getattr(each, name) for each in exits], axis=1) for name in SIGNAL_TYPES))


def _one_after_another(parts: Sequence[Signals]) -> Signals:
    return Signals(*(np.concatenate([getattr(part, name) for part in parts]) for name in SIGNAL_TYPES))


def _types(exits: int) -> dict[str, pa.DataType]:
    """Give the columns of a trace file."""
    types = {"client": pa.int32(), "sample": pa.int64(), "label": pa.int32()}
    return types | {
        f"{kind}.{name}": pa.list_(stored, exits) for kind in ANSWERS for name, (stored, _) in SIGNAL_TYPES.items()
    }


def _check_columns(table: pa.Table) -> None:
    for name, wanted in _types(_exits(table)).items():
        found = table.schema.field(name).type if name in table.column_names else None
        if found != wanted:
            raise ValueError(f"its column {name!r} must hold {wanted}, not {found or 'nothing'}")
        if table[name].null_count:
            raise ValueError(f"its column {name!r} has empty cells")


def _exits(table: pa.Table) -> int:
    first = f"{ANSWERS[0]}.prediction"
    kind = table.schema.field(first).type if first in table.column_names else pa.null()
    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 1


def _integers(table: pa.Table, name: str) -> Integers:
    values: Integers = table[name].to_numpy().astype(np.int64)
    if (values < 0).any():
        raise ValueError(f"its column {name!r} has negative numbers")
    return values


def _signals(table: pa.Table, kind: Answer) -> Signals:
    """Read the signals; a network that has diverged leaves NaN, which no policy takes for a sure answer."""
    found = {}
    for name, (_, wanted) in SIGNAL_TYPES.items():
        values = table[f"{kind}.{name}"].combine_chunks().flatten().to_numpy().astype(wanted)
        highest = 1 if name in ("confidence", "margin") else np.inf
        if ((values < 0) | (values > highest) | np.isinf(values)).any():
            raise ValueError(f"its column '{kind}.{name}' has values out of range")
        found[name] = values.reshape(-1, _exits(table))
    return Signals(**found)
