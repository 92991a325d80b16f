"""Bad input: one sentence that names the culprit and what is allowed, exit code 2, nothing lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bits import differences, files, vouch
from xfed import InputError, Run, open_run, resume
from xfed.cli import execute

SMALL = ["--clients", "4", "--rounds", "2", "--engine", "serial", "--convnet.width", "4", "--epochs", "1"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command that must be refused in an empty folder; give its sentence."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        before = files(tmp_path)
        assert execute(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        sentence = captured.err
        assert sentence.startswith("xfed: ")
        assert sentence.count("\n") == 1, "one sentence"
        assert "Traceback" not in sentence
        assert files(tmp_path) == before, "no work was started"
        return sentence

    return run


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--method", "fedprr"], ["method", "'fedprr'", "did you mean fedper", "xfed"]),
        (["run", "--dataset", "digit"], ["dataset", "'digit'", "digits"]),
        (["run", "--model", "convnt"], ["model", "'convnt'", "convnet"]),
        (["run", "--set", "roundz=3"], ["setting", "'roundz'", "rounds"]),
        (["run", "--set", "xfed.mew=3"], ["setting", "'xfed.mew'", "xfed.mu"]),
        (["run", "--set", "fedper.mu=3"], ["'fedper'", "xfed"]),
        (["run", "--set", "rounds"], ["'rounds'", "key=value"]),
        (["run", "--roundz", "3"], ["--roundz"]),
        (["run", "--xfed.schedule", "cubic"], ["xfed.schedule", "'cubic'", "linear", "quadratic"]),
        (["run", "--alpha", "0"], ["alpha", "'0'", "greater than 0"]),
        (["run", "--alpha", "-1"], ["alpha", "'-1'", "greater than 0"]),
        (["run", "--alpha", "some"], ["alpha", "'some'", "number"]),
        (["run", "--sample", "1.5"], ["sample", "'1.5'", "more sampled clients than there are clients", "at most 1"]),
        (["run", "--xfed.mu", "0"], ["xfed.mu", "greater than 0"]),
        (["run", "--engine", "warp"], ["engine", "'warp'", "processes", "ray", "serial"]),
        (["run", "--device", "quantum"], ["device", "'quantum'"]),
        (["run", "--calibration", "1"], ["calibration", "less than 1"]),
        (["run", "--clients", "900"], ["900 clients", "at least 4", "overlapping"]),
        (["run", "--convnet.padding", "0"], ["padding 0", "8 × 8", "convnet.padding=1"]),
        (["run", "nothing.yaml"], ["'nothing.yaml'"]),
        (["run", "--plugin", "nothing.py"], ["nothing.py'", "does not exist"]),
        (["compare", "--methods", "xfed,nope"], ["method", "'nope'", "fedavg"]),
        (["compare", "--methods", "xfed,xfed"], ["once"]),
        (["compare", "--methods", "fedper", "--set", "xfed.mu=0.7"], ["'xfed.mu'", "not among those compared"]),
        (["compare", "--seeds", "1,x"], ["'1,x'", "whole numbers"]),
        (["show", "nowhere"], ["'nowhere'", "not a run directory"]),
        (["resume", "nowhere"], ["'nowhere'", "not a run directory"]),
        (["nonsense"], ["nonsense"]),
    ],
)
def test_refused(refused: Callable[..., str], arguments: list[str], named: list[str]) -> None:
    sentence = refused(*arguments)
    for piece in named:
        assert piece in sentence


@pytest.mark.parametrize(
    ("clients", "named"),
    [
        ([{"train": [0, 1], "test": [1797]}], ["client 0", "1797", "0 to 1796"]),
        ([{"train": [0, 1], "test": [-1]}], ["client 0", "-1"]),
        ([{"train": [0, 1], "test": [2]}, {"train": [3, 1], "test": [4]}], ["index 1", "twice", "clients 0 and 1"]),
        ([{"train": [0, 0], "test": [2]}], ["index 0", "twice"]),
        ([{"train": [], "test": [2]}], ["client 0", "empty train"]),
        ([{"train": [0.5], "test": [2]}], ["whole numbers"]),
        ([], ["no client"]),
        ("nonsense", ["JSON object"]),
    ],
)
def test_partition_file_refused(refused: Callable[..., str], tmp_path: Path, clients: object, named: list[str]) -> None:
    (tmp_path / "parts.json").write_text(json.dumps({"clients": clients}))
    sentence = refused("run", "--partition", "parts.json")
    for piece in ["'parts.json'", *named]:
        assert piece in sentence


def test_partition_file_with_another_number_of_clients(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "parts.json").write_text(json.dumps({"clients": [{"train": [0], "test": [1]}]}))
    assert "has 1 clients, but clients is 7" in refused("run", "--partition", "parts.json", "--clients", "7")


def test_run_directory_that_exists(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("mine")
    sentence = refused("run", *SMALL, "--out", "mine")
    assert "'mine' exists already" in sentence
    assert (tmp_path / "mine" / "precious.txt").read_text() == "mine"


def test_checkpoint_cut_short(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = train("whole")
    shutil.copytree(whole.path, tmp_path / "cut")
    (tmp_path / "cut" / "finished.json").unlink()
    newest = tmp_path / "cut" / "checkpoints" / "round-000004" / "server.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert execute(["resume", "cut"]) == 0
    [told] = caplog.messages
    assert "round-000004" in told
    assert "damaged" in told
    assert "going on from the one before it, of round 3" in told
    assert differences(whole, open_run(tmp_path / "cut")) == []


def test_checkpoint_that_is_not_there(refused: Callable[..., str], train: Callable[..., Run], tmp_path: Path) -> None:
    path = train("stopped").path
    (path / "finished.json").unlink()
    assert "no checkpoint of round 1; there are: 3, 4" in refused("resume", str(path), "--round", "1")


def test_run_of_other_code_is_not_resumed(refused: Callable[..., str], train: Callable[..., Run]) -> None:
    path = train("old").path
    (path / "finished.json").unlink()
    environment = json.loads((path / "environment.json").read_text())
    (path / "environment.json").write_text(json.dumps({**environment, "code": "other"}))
    vouch(path)
    assert "another version of the code" in refused("resume", str(path))


def test_resume_changes_only_what_it_records_and_where_it_runs(train: Callable[..., Run]) -> None:
    path = train("stopped").path
    with pytest.raises(InputError, match=r"unknown setting to resume with 'epochs'.*lr.*rounds.*workers"):
        resume(path, epochs=3)


def test_show_before_the_first_checkpoint(train: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    path = train("early").path
    (path / "finished.json").unlink()
    (path / "rounds.parquet").unlink()
    shutil.rmtree(path / "checkpoints")
    assert execute(["show", str(path)]) == 0
    assert "no evaluation with a checkpoint yet" in capsys.readouterr().out
