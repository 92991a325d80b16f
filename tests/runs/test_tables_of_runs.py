"""Tables say what was run: all of it where rows differ, who is not finished, and each seed once."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from xfed import InputError, Run, open_run
from xfed.cli import execute
from xfed.report.rows import collect
from xfed.report.tables import comma_separated, notes
from xfed.runs.lock import alone


def test_a_caption_names_all_that_rows_differ_in(train: Callable[..., Run]) -> None:
    runs = [train("a", rounds=1, lr=0.05), train("b", rounds=2, lr=0.02, method="fedper")]
    for order in (runs, runs[::-1]):
        caption = notes(collect(order), order)
        first, second = (f"{run.experiment.training.rounds} × 1" for run in order)
        assert f"{first} or {second} epochs" in caption
        rates = [f"{run.experiment.training.lr:g} × 0.99" for run in order]
        assert f"rate {rates[0]} or {rates[1]} per round" in caption


def test_rows_of_one_method_are_named_by_what_differs(train: Callable[..., Run]) -> None:
    runs = [train("a", rounds=1, lr=0.05), train("b", rounds=1, lr=0.02), train("c", rounds=1, method="fedper")]
    assert [row.method for row in collect(runs)] == ["xfed, lr 0.05", "xfed, lr 0.02", "fedper"]
    many = train("d", rounds=2, lr=0.01, batch_size=8)
    assert [row.method for row in collect([runs[0], many])] == ["xfed, a", "xfed, d"]


def test_a_run_that_is_not_finished_says_so(train: Callable[..., Run]) -> None:
    stopped, done = train("stopped", rounds=2, eval_every=1), train("done", rounds=2, method="fedper")
    (stopped.path / "finished.json").unlink()
    assert "xfed, seed 1, is not finished: it is as after round 2 of 2." in notes(
        collect([stopped, done]), [stopped, done]
    )


def test_each_seed_counts_once(train: Callable[..., Run], tmp_path: Path) -> None:
    one, two = train("one", rounds=1), train("two", rounds=1, seed=2)
    copied = open_run(shutil.copytree(one.path, tmp_path / "copy"))
    [expected], [row] = collect([one, two]), collect([one, copied, two])
    assert row == expected
    assert row.seeds == 2
    runs = [one, copied, two]
    assert "Left out: 1 run with the settings and the seed of another." in notes([row], runs)


def test_the_spread_of_one_seed_is_not_known(train: Callable[..., Run]) -> None:
    runs = [train("one", rounds=1), train("two", rounds=1, seed=2), train("alone", rounds=1, method="fedper")]
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(comma_separated(collect(runs), runs)))}
    assert float(rows["xfed"]["last, std over seeds (%)"]) > 0
    assert rows["fedper"]["last, std over seeds (%)"] == ""


def test_who_works_on_a_run_is_told(train: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = train(rounds=1)
    (run.path / "finished.json").unlink()
    assert execute(["show", str(run.path)]) == 0
    assert f"after round 1; 'xfed resume {run.path}' continues it" in " ".join(capsys.readouterr().out.split())
    with alone(run.path):
        assert execute(["show", str(run.path)]) == 0
        assert "after round 1; process " in " ".join(capsys.readouterr().out.split())
        assert execute(["runs", str(run.path)]) == 0
        assert "running" in capsys.readouterr().out
        with pytest.raises(InputError, match=r"is not finished; process \d+ on .* works on it"):
            open_run(run.path).require_finished()
        assert execute(["check", str(run.path)]) == 0
        assert "what is being worked on is not examined" in capsys.readouterr().out


def test_a_long_path_leaves_room_for_the_state(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(f"{'long' * 20}/xfed-digits-seed1", rounds=1)
    monkeypatch.setenv("COLUMNS", "80")
    assert execute(["runs", str(run.path.parent)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(
        "…" in line and "xfed-digits-seed1" in line and "finished" in line and "xfed  " in line for line in lines
    )
    assert execute(["runs", str(run.path.parent), "--wide"]) == 0
    assert str(run.path) in capsys.readouterr().out.replace("\n", "")
