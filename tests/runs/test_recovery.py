"""Nothing that a command was not asked to change is lost; `xfed check` says what is, and puts settings back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from tests.bits import differences, files
from xfed import InputError, Run, open_run, resume
from xfed.cli import execute
from xfed.errors import Interrupted
from xfed.federation.loop import Federation
from xfed.runs.directory import RunDirectory

PLUGIN = '''
from xfed.algorithms.fedper import FedPer
from xfed.protocol.algorithm import method


@method("under-another-name")
class Mine(FedPer):
    """FedPer under another name."""
'''


def everything(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files(folder) if name != ".lock"}


@pytest.mark.parametrize("otherwise", [{"rounds": 4}, {"on_failure": "stop"}, {"lr": 0.05}, {"workers": 2}])
def test_a_finished_run_with_nothing_to_do_is_left_alone(
    train: Callable[..., Run], otherwise: dict[str, object]
) -> None:
    run = train()
    execute(["calibrate", str(run.path), "--budget", "70%"])
    before = everything(run.path)
    assert {"rounds": 4, "on_failure": "stop", "lr": 0.05}.items() >= {
        name: getattr(run.experiment.training, name) for name in ("rounds", "on_failure", "lr")
    }.items()
    assert resume(run.path, progress=False, **otherwise).finished
    assert everything(run.path) == before


def test_a_plugin_for_no_round_is_refused(train: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    run = train(method="under-another-name", plugin=[tmp_path / "mine.py"])
    before = everything(run.path)
    with pytest.raises(InputError, match="would go on after round 4; allowed: a higher --rounds, or an earlier"):
        resume(run.path, progress=False, plugin=tmp_path / "mine.py")
    assert everything(run.path) == before


def test_a_rewind_that_cannot_read_changes_nothing(train: Callable[..., Run]) -> None:
    run = train()
    path = run.path / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:100])
    before = everything(run.path)
    with pytest.raises(InputError, match=r"rounds\.parquet' is damaged.*; 'xfed check"):
        resume(run.path, progress=False, from_round=3)
    assert everything(run.path) == before


def test_an_interrupt_right_after_a_checkpoint_loses_no_record(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train("whole")
    save = Federation._save

    def save_and_be_interrupted(self: Federation) -> None:
        save(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Federation, "_save", save_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        train("cut", checkpoint_every=2)
    monkeypatch.undo()
    assert open_run(tmp_path / "cut").directory.checkpoints.rounds()[-1] == 2
    assert differences(whole, resume(tmp_path / "cut", progress=False)) == []


def test_a_run_killed_before_its_first_checkpoint_starts_again(train: Callable[..., Run]) -> None:
    """Its first round was noted, and not saved."""
    run, whole = train("cut"), train("whole")
    (run.path / "finished.json").unlink()
    shutil.rmtree(run.path / "checkpoints")
    run.directory.write_rounds(run.records()[:1])
    resumed = resume(run.path, progress=False)
    assert [record.round for record in resumed.records()] == [1, 2, 3, 4]
    assert differences(whole, resumed) == []


def test_an_interrupt_at_the_very_end_says_how_to_go_on(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "finish", interrupt)
    with pytest.raises(Interrupted) as caught:
        train("cut")
    assert caught.value.path == tmp_path / "cut"
    monkeypatch.undo()
    assert differences(train("whole"), resume(tmp_path / "cut", progress=False)) == []


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_results_need_no_checkpoint(train: Callable[..., Run], damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = train()
    if damage == "gone":
        shutil.rmtree(run.path / "checkpoints")
    else:
        for path in (run.path / "checkpoints" / "round-000004").iterdir():
            path.write_bytes(path.read_bytes()[:40])
    assert open_run(run.path).state_bytes() == (None, None)
    assert execute(["show", str(run.path), "--wide"]) == 0
    assert execute(["plot", str(run.path)]) == 0
    assert execute(["check", str(run.path)]) == 1
    assert "results do not need it, only going on does" in capsys.readouterr().out


def test_a_figure_and_foreign_files_do_a_run_no_harm(
    train: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train()
    assert execute(["plot", str(run.path)]) == 0
    (run.path / "thoughts.txt").write_text("mine")
    capsys.readouterr()
    assert execute(["check", str(run.path)]) == 0
    told = capsys.readouterr().out
    assert f"not written by this run, which does it no harm: {run.path / 'thoughts.txt'}\n" in told
    assert "accuracy.png" not in told
    assert "all that was written is there" in told


def test_edited_settings_are_put_back(train: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = train()
    path = run.path / "settings.yaml"
    text = path.read_text()
    for spoilt in (text.replace("lr: 0.05", "lr: 0.5"), None):
        path.unlink()
        if spoilt is not None:
            path.write_text(spoilt)
        assert execute(["check", str(run.path)]) == 1
        told = capsys.readouterr().out
        assert ("training.lr was 0.05 and is 0.5" in told) == (spoilt is not None)
        assert f"'xfed check {run.path} --settings' puts the settings back" in told
        assert execute(["check", str(run.path), "--settings"]) == 0
        assert path.read_text() == text


def test_computing_again_starts_from_the_runs_own_plugin(
    train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    run = train(method="under-another-name", plugin=[plugin])
    resume(run.path, progress=False, rounds=5)
    metrics = run.path / "metrics" / "round-000002.parquet"
    metrics.write_bytes(metrics.read_bytes()[:50])
    capsys.readouterr()
    assert execute(["check", str(run.path)]) == 1
    told = capsys.readouterr().out
    [own] = (run.path / "plugins").glob("*mine.py")
    assert f"'xfed run {run.path / 'settings.yaml'} --out NEW --plugin {own}' computes everything again" in told
    assert "if it is continued alike (rounds 4 → 5 after round 4)" in told
    assert execute(["run", str(run.path / "settings.yaml"), "--out", str(tmp_path / "new"), "--plugin", str(own)]) == 0
    assert execute(["resume", str(tmp_path / "new"), "--rounds", "5"]) == 0


class Backwards(datetime):
    """A clock that is set back by a day whenever somebody looks at it."""

    looks = 0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        cls.looks += 1
        return datetime.now(tz) - timedelta(days=cls.looks)


def test_a_clock_that_jumps_changes_nothing(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = train("undisturbed")
    for module in ("environment", "progress", "running", "runs.lock"):
        monkeypatch.setattr(f"xfed.{module}.datetime", Backwards)
    monkeypatch.setattr(time, "time", lambda: Backwards.now(UTC).timestamp())
    jumped = train("jumped")
    assert Backwards.looks > len(jumped.records()), "the clock was looked at in every round"
    assert differences(undisturbed, jumped) == []
    assert all(record.train_seconds >= 0 and record.evaluation_seconds >= 0 for record in jumped.records())
