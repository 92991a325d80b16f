"""The table of a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bits import vouch
from xfed import Run
from xfed.cli import execute
from xfed.report.rows import collect
from xfed.report.tables import cells, notes


def test_seconds_of_training_stand_beside_what_was_computed(train: Callable[..., Run]) -> None:
    run = train()
    # Rounds of 1, 2, 3 and 4 seconds; what evaluations took does not count.
    noted = [replace(r, macs=6_000_000_000, train_seconds=r.round, evaluation_seconds=50.0) for r in run.records()]
    run.directory.write_rounds(noted)
    vouch(run.path)
    header, body = cells(collect([run]), [run])
    place = header.index("GMAC")
    assert header[place + 1] == "s/round"
    assert body[0][place : place + 2] == ["2.00", "2.50"]  # three clients a round


@pytest.fixture
def dealt(tmp_path: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Ways of dealing samples out: how each is called in a caption, and its settings."""
    x = np.random.default_rng(1).integers(0, 255, (120, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(120) % 3, client=np.arange(120) // 20)
    starts = range(0, 240, 40)
    clients = [{"train": list(range(i, i + 30)), "test": list(range(i + 30, i + 40))} for i in starts]
    (tmp_path / "split.json").write_text(json.dumps({"clients": clients}))
    own = {"dataset": "npz", "npz": {"path": tmp_path / "mine.npz"}, "partition_by": "natural"}
    return {
        "dirichlet": ("Dir(0.7)", {"alpha": 0.7}),
        "iid": ("iid", {"partition_by": "iid"}),
        "pathological": ("4 classes per client", {"partition_by": "pathological", "classes_per_client": 4}),
        "natural": ("natural clients", own),
        "file": ("partition file split.json", {"partition": tmp_path / "split.json"}),
    }


@pytest.mark.parametrize("way", ["dirichlet", "iid", "pathological", "natural", "file"])
def test_captions_say_how_samples_were_dealt_out(
    train: Callable[..., Run],
    dealt: dict[str, tuple[str, dict[str, Any]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    words, settings = dealt[way]
    run = train(rounds=1, **settings)
    page = tmp_path / "page.html"
    assert f" per round, {words}, 1 × " in notes(collect([run]), [run])
    monkeypatch.setenv("COLUMNS", "200")
    for command in (["show", run.path], ["runs", run.path.parent], ["report", run.path, "-o", page]):
        assert execute([str(word) for word in command]) == 0
    told, written = capsys.readouterr().out, page.read_text(encoding="utf-8")
    assert told.count(f", {words}, ") == 2
    assert f', {words}"' in written
    if way != "dirichlet":
        assert "Dir(" not in told + written


def test_tables_say_whose_answers_are_running_means(train: Callable[..., Run]) -> None:
    runs = [train(method, rounds=1, method=method) for method in ("xfed", "fedper", "xfed-plus")]
    told = "Exits answer with running means in xfed-plus, with their own softmax in xfed, fedper."
    assert told in notes(collect(runs), runs)
    assert "Exits answer" not in notes(collect(runs[:2]), runs[:2])


def test_names_tell_settings_apart_that_differ_and_no_others(train: Callable[..., Run]) -> None:
    runs = [train(name, rounds=1, answers=answers) for name, answers in (("r", "running"), ("o", "own"), ("n", None))]
    assert [row.method for row in collect(runs)] == [
        "xfed, answers running",
        "xfed, answers own, o",
        "xfed, answers own, n",
    ]


def test_clients_that_never_took_part_are_whole(train: Callable[..., Run]) -> None:
    runs = [train(f"seed {seed}", rounds=1, sample=0.34, seed=seed) for seed in (1, 2)]
    runs.append(train("seed 3", rounds=2, sample=0.34, seed=1))
    most = max(int((~run.summary().last.trained).sum()) for run in runs)
    assert f"up to {most} never took part" in notes(collect(runs), runs)
