"""The command line as a person uses it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import click
import pytest
import yaml

from tests.bits import vouch
from xfed import open_run
from xfed.cli import execute
from xfed.cli.group import FrontDoor

SMALL = ["--clients", "4", "--rounds", "3", "--engine", "serial", "--convnet.width", "4", "--epochs", "1"]

PLUGIN = '''
"""FedPer whose clients start with a few epochs on their exits alone."""
from pydantic import Field, PositiveInt
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.models.parts import Parts
from xfed.protocol.algorithm import method
from dataclasses import replace


@method("warm")
class Warm(FedPer):
    """FedPer with a warm-up of the exits."""

    class Settings(BaseSettings):
        warmup: PositiveInt = Field(2, description="epochs on the exits before the rest joins")

    def phases(self, client, received):
        phase, = super().phases(client, received)
        return [replace(phase, parts=Parts.EXITS, epochs=self.settings.warmup), phase]
'''


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_with_every_option_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        "run --method fedper --dataset digits --model convnet --clients 5 --sample 0.4 --alpha 0.5 --rounds 2 "
        "--epochs 1 --seed 3 --engine serial --workers 2 --device cpu --out runs/mine --set convnet.width=4 "
        "--set lr=0.02"
    )
    assert execute(command.split()) == 0
    run = open_run(Path("runs/mine"))
    e = run.experiment
    assert (e.method, e.seed, e.dealing.clients, e.dealing.alpha) == ("fedper", 3, 5, 0.5)
    assert (e.training.sample, e.training.lr, e.settings["model"]["width"]) == (0.4, 0.02, 4)
    shown = capsys.readouterr().out
    assert "finished" in shown
    assert execute(["show", "runs/mine"]) == 0
    assert capsys.readouterr().out == shown
    for column in ("last", "exit 3", "majority class", "GMAC", "s/round", "--wide", "kernels: torch's own"):
        assert column in shown
    assert execute(["show", "runs/mine", "--wide"]) == 0
    wide = capsys.readouterr().out
    for column in ("last5", "best", "client", "server", "time", "last5: mean of the last five evaluated rounds"):
        assert column in " ".join(wide.split())


def test_settings_file_and_precedence() -> None:
    settings = {
        "rounds": 2,
        "clients": 4,
        "engine": "serial",
        "lr": 0.3,
        "seed": 8,
        "convnet": {"width": 4},
        "epochs": 1,
    }
    Path("s.yaml").write_text(yaml.safe_dump({**settings, "xfed": {"mu": 0.7, "lam": 0.5}}))
    assert (
        execute(
            ["run", "s.yaml", "--set", "lr=0.2", "--set", "seed=9", "--seed", "10", "--xfed.lam", "0.25", "--out", "r"]
        )
        == 0
    )
    experiment = open_run(Path("r")).experiment
    assert (experiment.training.lr, experiment.seed) == (0.2, 10)
    assert (experiment.settings["method"]["mu"], experiment.settings["method"]["lam"]) == (0.7, 0.25)
    assert execute(["run", "r/settings.yaml", "--out", "again"]) == 0, "a run's settings are a settings file"
    assert open_run(Path("again")).experiment.settings == experiment.settings


def test_compare_reuses_only_equal_runs(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "--methods", "xfed,fedper", *SMALL, "--out", "c"]
    assert execute(command) == 0
    first = {path.name: (path / "finished.json").stat().st_mtime_ns for path in Path("c").iterdir() if path.is_dir()}
    assert len(first) == 2
    table = list(csv.reader(Path("c/table.csv").read_text().splitlines()))
    assert [line[0] for line in table] == ["method", "xfed", "fedper", "majority class"]
    assert Path("c/accuracy.png").stat().st_size > 10_000
    assert Path("c/table.md").read_text().startswith("| method | last")

    noted = {path.name: path.read_bytes() for path in Path("c").iterdir() if path.is_file()}
    assert execute(command) == 0
    assert {path.name: path.read_bytes() for path in Path("c").iterdir() if path.is_file()} == noted

    assert execute([*command, "--set", "xfed.mu=0.7"]) == 0
    assert {path.name: path.read_bytes() for path in Path("c").iterdir() if path.name in noted} == noted
    assert Path("c/table-2.csv").is_file(), "another result goes beside the first"
    assert "c/table.csv is of other runs and stays; this result is number 2" in capsys.readouterr().out
    second = {path.name: (path / "finished.json").stat().st_mtime_ns for path in Path("c").iterdir() if path.is_dir()}
    assert first.items() <= second.items(), "finished runs were left alone"
    assert [name.split("-")[0] for name in second.keys() - first.keys()] == ["xfed"], "FedPer was reused"

    partitions = {(Path("c") / name / "partition.safetensors").read_bytes() for name in second}
    assert len(partitions) == 1, "one partition for all methods"

    environment = Path("c") / next(name for name in first if name.startswith("fedper")) / "environment.json"
    noted = json.loads(environment.read_text())
    environment.write_text(json.dumps({**noted, "fingerprint": "another"}))
    vouch(environment.parent)
    assert execute(command) == 2
    assert "exists already" in capsys.readouterr().err


def test_compare_several_seeds() -> None:
    assert execute(["compare", "--methods", "local", *SMALL, "--seeds", "1,2", "--out", "c"]) == 0
    row, trivial = csv.DictReader(Path("c/table.csv").read_text().splitlines())
    runs = [open_run(path) for path in sorted(Path("c").iterdir()) if path.is_dir()]
    assert [run.experiment.seed for run in runs] == [1, 2]
    means = [100 * run.summary().last.mean for run in runs]
    assert float(row["last (%)"]) == pytest.approx(sum(means) / 2)
    assert float(row["last, std over seeds (%)"]) == pytest.approx(abs(means[0] - means[1]) / 2**0.5)
    records = [record for run in runs for record in run.records()]
    assert float(row["up (B)"]) == pytest.approx(sum(r.bytes_up / r.replies for r in records) / len(records))
    for name, text in (*row.items(), *trivial.items()):
        assert name == "method" or text == "" or float(text) >= 0, "numbers alone; units are in the header"


def test_plugin_method_runs_on_two_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(PLUGIN.strip().splitlines()) < 40
    Path("warm.py").write_text(PLUGIN)
    plugin = ["--plugin", "warm.py"]
    assert execute(["methods", *plugin, "--wide"]) == 0
    listed = capsys.readouterr().out
    assert "FedPer with a warm-up of the exits." in listed
    assert "warm.warmup" in listed
    assert execute(["run", *plugin, "--method", "warm", "--help"]) == 0
    assert "epochs on the exits before the rest joins" in capsys.readouterr().out
    small = [argument if argument != "serial" else "processes" for argument in SMALL]
    assert (
        execute(
            [
                "compare",
                *plugin,
                "--methods",
                "warm,fedper",
                *small,
                "--workers",
                "2",
                "--warm.warmup",
                "1",
                "--out",
                "c",
            ]
        )
        == 0
    )
    table = capsys.readouterr().out
    assert "warm" in table
    runs = {run.experiment.method: run for run in map(open_run, (p for p in Path("c").iterdir() if p.is_dir()))}
    assert runs["warm"].experiment.settings["method"] == {"warmup": 1}
    warm, plain = (sum(record.macs for record in runs[name].records()) for name in ("warm", "fedper"))
    assert warm > plain, "the warm-up really ran"
    assert (runs["warm"].path / "plugins" / "0-warm.py").read_text() == PLUGIN, "a run keeps the plug-in it used"


def test_lists_show_names_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    for command, pieces in {
        "methods": ["local", "fedavg", "fedper", "xfed", "xfed.schedule", "quadratic"],
        "datasets": ["digits"],
        "models": ["convnet", "convnet.width"],
        "engines": ["serial", "processes", "processes.timeout"],
    }.items():
        assert execute([command, "--wide"]) == 0
        listed = capsys.readouterr().out
        for piece in pieces:
            assert piece in listed


def test_every_required_option_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command, or command of a group, without one of the options that its help calls required."""
    front, asked = FrontDoor([]), 0
    context = click.Context(front)
    commands = [(name, front.get_command(context, name)) for name in front.list_commands(context)]
    while commands:
        name, command = commands.pop()
        if isinstance(command, click.Group):
            commands += [(f"{name} {inner}", found) for inner, found in command.commands.items()]
            continue
        assert command is not None
        needed = [option for option in command.params if isinstance(option, click.Option) and option.required]
        arguments = ["x" for each in command.params if isinstance(each, click.Argument) and each.required]
        for option in needed:
            others = [word for other in needed if other is not option for word in (other.opts[0], "x")]
            assert execute([*name.split(), *arguments, *others]) == 2, name
            assert f"Missing option '{option.opts[0]}'" in capsys.readouterr().err, name
            asked += 1
    assert asked >= 5
