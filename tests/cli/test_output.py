"""Help, versions, completion, and how much is printed where."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import xfed
from tests.conftest import tiny
from xfed.cli import execute
from xfed.cli.group import COMMANDS
from xfed.evaluation.summary import RoundAccuracy
from xfed.runs.records import RoundRecord

SMALL = ["--clients", "4", "--rounds", "3", "--engine", "serial", "--convnet.width", "4", "--epochs", "1"]


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def widest(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


def test_without_arguments_there_is_the_whole_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([]) == 0
    shown = capsys.readouterr().out
    assert execute(["-h"]) == 0
    assert capsys.readouterr().out == shown
    for name in COMMANDS:
        assert re.search(rf"^  {name}  ", shown, re.MULTILINE)
    assert widest(shown) <= 80
    assert execute(["data"]) == 0
    assert "partition" in capsys.readouterr().out
    assert execute(["show", "-h"]) == 0
    assert "--wide" in capsys.readouterr().out


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out == f"xfed {version('xfed')}\n"
    assert xfed.__version__ == version("xfed")


def test_quiet_prints_nothing_and_the_log_names_method_seed_and_rounds(capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", *SMALL, "--seed", "7", "--out", "r", "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    lines = Path("r/run.log").read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 xfed on digits, seed 7: ", line) for line in lines)
    said = [line.split(": ", 1)[1] for line in lines]
    assert said[0].startswith("started")
    assert [text.split(",")[0] for text in said[1:-1]] == ["round 1/3", "round 2/3", "round 3/3"]
    assert said[-1] == "finished"


def test_the_log_of_an_interrupted_run_says_so() -> None:
    def interrupt(record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        xfed.run(tiny(out="r", rounds=2), progress=False, watchers=[interrupt])
    assert Path("r/run.log").read_text(encoding="utf-8").splitlines()[-1].endswith(": interrupted")


def test_without_a_terminal_lines_come_from_round_1_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xfed.progress.LINE_SECONDS", float("inf"))
    rounds = ["12" if argument == "3" else argument for argument in SMALL]
    assert execute(["run", *rounds, "--out", "r"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("xfed on digits, seed 1: round 1/12, loss ")
    assert lines[0].endswith(" left")
    assert [line.split("round ")[1].split("/")[0] for line in lines] == ["1", "8", "9", "10", "11", "12"]
    monkeypatch.setattr("xfed.progress.LINE_SECONDS", 0.0)
    assert execute(["run", *SMALL, "--out", "slow"]) == 0
    within = [line for line in capfd.readouterr().err.splitlines() if "round 2/3 · " in line]
    assert [line.split(" · ")[1] for line in within] == ["1/2", "2/2", *(f"eval {k}/4" for k in range(1, 5))]


def test_verbose_names_every_client(capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", *SMALL, "--out", "r", "-v"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert sum("trained" in line for line in lines) == 3 * 2, "two of four clients in each of three rounds"
    assert sum("evaluated" in line for line in lines) == 3 * 4
    assert sum("loss" in line for line in lines) == 3


def test_tables_fit_80_columns_and_captions_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "--methods", "xfed,fedper", "--seeds", "1,2", *SMALL, "--sample", "1", "--out", "c", "-q"]
    assert execute(command) == 0
    assert capsys.readouterr().out == ""
    assert execute(["show", "c"]) == 0
    shown = capsys.readouterr().out
    assert widest(shown) <= 80
    lines = shown.splitlines()
    caption = lines[1 + next(i for i, line in enumerate(lines) if line.startswith("majority class")) :]
    assert len(caption) <= 2
    assert "seed 1, 2" in " ".join(caption)
    assert execute(["show", "c", "--wide"]) == 0
    assert widest(capsys.readouterr().out) > 80
    assert execute(["runs", "c"]) == 0
    assert widest(capsys.readouterr().out) <= 80


@pytest.mark.parametrize("command", [["paper", "list"], ["methods"], ["methods", "--wide"], ["engines"]])
def test_listings_fit_80_columns_in_the_style_of_tables(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(command) == 0
    shown = capsys.readouterr().out
    assert widest(shown) <= 80
    assert shown.splitlines()[0].startswith("name")
    assert not re.search("[│┃┏╇]", shown)


def test_show_keeps_apart_what_differs_by_more_than_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    for name, more in (("a", ["--seed", "1"]), ("b", ["--seed", "2"]), ("c", ["--xfed.mu", "0.9"])):
        assert execute(["run", *SMALL, *more, "--out", name, "-q"]) == 0
    assert execute(["show", "a", "b", "c"]) == 0
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("xfed")]
    assert rows == ["xfed, mu 0.6", "xfed, mu 0.9"], "a and b are two seeds of one row"
    assert execute(["run", *SMALL, "--alpha", "5", "--out", "d", "-q"]) == 0
    assert execute(["show", "a", "d"]) == 0
    assert capsys.readouterr().out.count("majority class") == 2, "another partition is another table"


def test_dry_run_leaves_nothing_and_tells_what_the_run_then_takes(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--method", "fedavg", *SMALL, "--sample", "1"]
    assert execute([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert list(Path().iterdir()) == []
    assert "method: fedavg" in said
    assert execute([*command, "--out", "r", "-q"]) == 0
    run = xfed.open_run("r")
    up = sum(record.bytes_up for record in run.records())
    assert f"{up / 1000:.1f} kB" in next(line for line in said.splitlines() if line.startswith("sent by a client"))
    computed = next(line for line in said.splitlines() if line.startswith("computed by a client"))
    of_a_client = run.records()[0].macs / 4 / 1e9
    assert re.findall(r"[\d.e-]+(?= GMAC)", computed) == [f"{of_a_client:.3g}"] * 2 + [f"{12 * of_a_client:.3g}"]
    assert "memory: about" in said
    assert "time: about" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["completion", shell]) == 0
    assert f"_XFED_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "number", "expected"),
    [
        ("xfed com", 1, ["plain,compare", "plain,completion"]),
        ("xfed run --method fedp", 3, ["plain,fedpac", "plain,fedper", "plain,fedprox"]),
        ("xfed run --method fedprox --fedprox", 4, ["plain,--fedprox.mu"]),
        ("xfed run --kernels f", 3, ["plain,fast"]),
    ],
)
def test_completion_of_commands_options_and_values(line: str, number: int, expected: list[str]) -> None:
    environment = os.environ | {"_XFED_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(number)}
    completed = subprocess.run(
        [sys.executable, "-m", "xfed"], env=environment, capture_output=True, text=True, check=True
    )
    assert sorted(completed.stdout.split()) == expected


def test_where_there_are_only_plain_letters_figures_stay_readable(tmp_path: Path) -> None:
    assert execute(["run", *SMALL, "--out", "r", "-q"]) == 0
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "100"}
    shown = subprocess.run(
        [sys.executable, "-m", "xfed", "show", "r"], env=environment, cwd=tmp_path, capture_output=True, check=True
    ).stdout.decode("ascii")
    assert re.search(r"xfed +\|? *\d+\.\d\d \+- \d+\.\d\d", shown)
    assert "3 x 1 epochs" in shown
    assert "?" not in shown


def test_an_empty_settings_file_means_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.yaml").write_text("# nothing yet\n")
    assert execute(["run", "empty.yaml", *SMALL, "--out", "r", "-q"]) == 0
    assert xfed.open_run("r").experiment.method == "xfed"


def test_a_dry_run_that_is_refused_prints_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", "--convnet.width", "100000", "--dry-run"]) == 2
    assert capsys.readouterr().out == ""
