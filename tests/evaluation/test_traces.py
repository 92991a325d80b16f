"""Exit traces: both kinds of answers, and files that keep every bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace
from xfed.runs.directory import RunDirectory
from xfed_runtime.answers import Answering, signals

NAMES = ("prediction", "confidence", "margin", "entropy")


def trace(client: int, samples: int, seed: int = 0) -> tuple[ExitTrace, list[np.ndarray]]:
    generator = np.random.default_rng(seed)
    logits = [generator.normal(0, 3, (samples, 5)).astype(np.float32) for _ in range(3)]
    labels = generator.integers(5, size=samples)
    return ExitTrace.of(client, 100 + np.arange(samples), labels, logits), logits


def assert_equal(one: ExitTrace, other: ExitTrace) -> None:
    for name in ("owners", "samples", "labels"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    for kind in ("own", "running"):
        for name in NAMES:
            a, b = (getattr(getattr(each, kind), name) for each in (one, other))
            assert a.dtype == b.dtype
            assert np.array_equal(a, b, equal_nan=True)


def test_signals_of_both_answers() -> None:
    made, logits = trace(4, 6)
    for kind in ("own", "running"):
        answering = Answering(kind)
        for j, each in enumerate(logits):
            expected = signals(answering.add(each))
            for name in NAMES:
                assert getattr(made.signals(kind), name)[:, j].tolist() == getattr(expected, name).tolist()
    assert (made.exits, len(made), made.clients) == (3, 6, [4])


def test_clients_apart_and_together() -> None:
    first, second = trace(7, 3)[0], trace(2, 4, seed=1)[0]
    both = ExitTrace.concatenate([first, second])
    assert both.clients == [2, 7]
    assert_equal(both.of_client(7), first)
    assert_equal(both.of_client(2), second)
    assert len(both.of_client(3)) == 0
    apart = ExitTrace.concatenate([first, second, first]).by_client()
    assert list(apart) == [2, 7]
    assert_equal(apart[2], second)
    assert_equal(apart[7], ExitTrace.concatenate([first, first]))
    assert trace(1, 0)[0].by_client() == {}


@pytest.mark.parametrize("samples", [0, 1, 9])
def test_a_file_keeps_every_bit(samples: int, tmp_path: Path) -> None:
    made, _ = trace(5, samples)
    made.write(tmp_path / "traces" / "test-000040.parquet")
    assert_equal(ExitTrace.read(tmp_path / "traces" / "test-000040.parquet"), made)


def test_a_diverged_network_leaves_a_trace_too(tmp_path: Path) -> None:
    made = ExitTrace.of(0, np.arange(2), np.zeros(2, dtype=int), [np.full((2, 3), np.nan, dtype=np.float32)] * 2)
    made.write(tmp_path / "trace.parquet")
    assert_equal(ExitTrace.read(tmp_path / "trace.parquet"), made)


def test_names_in_a_run(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert directory.latest_trace("test") is None
    for of, round in (("test", 5), ("test", 40), ("calibration", 100)):
        path = directory.trace(of, round)  # type: ignore[arg-type]
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = directory.latest_trace("test")
    assert found == tmp_path / "traces" / "test-000040.parquet"


def damaged(table: pa.Table, name: str, values: pa.Array | None) -> pa.Table:
    index = table.column_names.index(name)
    rest = table.remove_column(index)
    return rest if values is None else rest.append_column(name, values)


def lists(rows: list[list[float]], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(rows, pa.list_(kind or pa.float32(), len(rows[0])))


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("label", None, "'label' must hold int32, not nothing"),
        ("own.prediction", None, "'own.prediction' must hold"),
        ("client", pa.array([0.5, 1.0]), "'client' must hold int32, not double"),
        ("client", pa.array([0, None], pa.int32()), "'client' has empty cells"),
        ("sample", pa.array([0, -1]), "'sample' has negative numbers"),
        ("own.confidence", lists([[0.5, 0.5]] * 2), "'own.confidence' must hold"),
        ("own.confidence", lists([[0.5, 0.5, 0.5]] * 2, pa.float64()), "'own.confidence' must hold"),
        ("own.confidence", lists([[0.5, 0.5, 1.5]] * 2), "'own.confidence' has values out of range"),
        ("running.margin", lists([[0.5, 0.5, -0.5]] * 2), "'running.margin' has values out of range"),
        ("running.entropy", lists([[0.5, 0.5, float("inf")]] * 2), "'running.entropy' has values out of range"),
    ],
)
def test_what_is_refused(name: str, values: pa.Array | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    trace(0, 2)[0].write(path)
    pq.write_table(damaged(pq.read_table(path), name, values), path)
    with pytest.raises(InputError, match=sentence) as caught:
        ExitTrace.read(path)
    assert str(path) in str(caught.value)


def test_what_is_no_trace_at_all(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("hello")
    for name in ("text.parquet", "missing.parquet"):
        with pytest.raises(InputError, match=name):
            ExitTrace.read(tmp_path / name)
