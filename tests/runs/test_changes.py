"""A run that goes on otherwise than it began: with more rounds, another rate, a mended plug-in; and what it records."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.bits import contents, differences, final_models
from xfed import ClientError, InputError, Run, open_run, resume
from xfed.cli import execute
from xfed.comparison import compare, find_run, plan_comparison
from xfed.report.rows import collect
from xfed.report.tables import notes
from xfed.runs.rewinding import rewind


def lasting(run: Run) -> dict[str, object]:
    """What later rounds build on: the server and the clients, without the rounds' records and evaluations."""
    return {n: v for n, v in contents(run).items() if n.startswith(("server/", "client/", "kept/", "models/"))}


def test_a_method_without_a_schedule_is_extended_to_the_bits_of_a_longer_run(train: Callable[..., Run]) -> None:
    short, long = train("short", method="fedper", rounds=2), train("long", method="fedper", rounds=4)
    extended = resume(short.path, progress=False, rounds=4)
    assert extended.finished
    assert extended.experiment.training.rounds == 4
    ours, theirs = lasting(extended), lasting(long)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        same = torch.equal(value, theirs[name]) if isinstance(value, torch.Tensor) else value == theirs[name]
        assert same, name
    assert [record.round for record in extended.records()] == [1, 2, 3, 4]
    [change] = open_run(short.path).changes()
    assert (change.setting, change.before, change.after, change.round) == ("rounds", 2, 4, 2)
    assert "rounds: 2" in (short.path / "settings.yaml").read_text(), "how it was started stays to be read"


def test_an_extension_is_told_and_never_reused_as_the_shorter_run(
    train: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_comparison(
        {"clients": 4, "rounds": 1, "engine": "serial", "convnet.width": 4, "epochs": 1}, ["xfed"], [1]
    )
    [first] = compare(plan, tmp_path / "c", progress=False)
    assert execute(["resume", str(first.path), "--rounds", "2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "continued otherwise: rounds 1 → 2 after round 1" in told
    assert "xfed, seed 1, was continued otherwise: rounds 1 → 2 after round 1 (the method plans by the number" in told
    stem = first.path.name.rpartition("-")[0]
    assert find_run(tmp_path / "c", stem, first.environment()["fingerprint"], "any") is None
    [second] = compare(plan, tmp_path / "c", progress=False)
    assert second.path != first.path
    assert second.experiment.training.rounds == 1
    fixed = train("fixed", xfed={"schedule": "fixed"}, rounds=1)
    extended = resume(fixed.path, progress=False, rounds=2)
    assert "plans by the number" not in notes(collect([extended]), [extended])


def test_an_extension_drops_what_belonged_to_the_end(train: Callable[..., Run]) -> None:
    run = train(rounds=2)
    assert execute(["calibrate", str(run.path), "--budget", "60%"]) == 0
    resume(run.path, progress=False, rounds=3)
    assert not run.directory.policies.exists(), "policies of other models"
    assert sorted(path.name for path in run.directory.traces.glob("calibration-*")) == ["calibration-000003.parquet"]
    assert execute(["check", str(run.path)]) == 0


def test_damaged_models_are_computed_again(train: Callable[..., Run], tmp_path: Path) -> None:
    whole = train("whole")
    damaged = Path(shutil.copytree(whole.path, tmp_path / "damaged"))
    (damaged / "models" / "client-000001.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is damaged: it has 7 bytes"):
        open_run(damaged).model(1)
    assert execute(["check", str(damaged)]) == 1
    assert execute(["resume", str(damaged), "--round", "3"]) == 0
    assert differences(whole, open_run(damaged)) == []
    assert open_run(damaged).changes() == (), "the same bits are no change"


def test_another_rate_goes_on_from_an_earlier_round_and_is_recorded(train: Callable[..., Run]) -> None:
    run = train(rounds=3, method="fedavg")
    before = final_models(run)
    (run.path / "finished.json").unlink()
    changed = resume(run.path, progress=False, from_round=2, lr=0.01)
    [change] = changed.changes()
    assert str(change) == "lr 0.05 → 0.01 after round 2"
    assert changed.experiment.training.lr == 0.01
    after = final_models(changed)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert changed.directory.checkpoints.rounds() == [2, 3]


PLUGIN = """
import xfed

@xfed.method("mending")
class Mending(xfed.Algorithm):
    travels = xfed.Parts.MODEL

    def train(self, client, received):
        if client.round == 2:
            {}
        return super().train(client, received)
"""


def test_a_mended_plugin_takes_the_place_of_the_broken_one(train: Callable[..., Run], tmp_path: Path) -> None:
    for folder, line in (("broken", "raise ZeroDivisionError('my bug')"), ("mended", "pass")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mending.py").write_text(PLUGIN.format(line))
    with pytest.raises(ClientError, match="my bug") as caught:
        train("run", method="mending", plugin=[tmp_path / "broken" / "mending.py"], rounds=3)
    path = tmp_path / "run"
    mend = f"'xfed resume {path} --plugin mending.py' does so with a mended plug-in"
    assert caught.value.__notes__ == [f"rounds up to 1 are kept: 'xfed resume {path}' continues the run, and {mend}"]
    with pytest.raises(ClientError, match="my bug"):
        resume(path, progress=False)
    run = resume(path, progress=False, plugin=tmp_path / "mended" / "mending.py")
    assert run.finished
    [change] = run.changes()
    assert str(change) == "plugin 0-mending.py → 0.2-mending.py after round 1"
    assert sorted(file.name for file in run.directory.plugins.iterdir()) == ["0-mending.py", "0.2-mending.py"]
    assert [record.round for record in open_run(path).records()] == [1, 2, 3]
    assert execute(["check", str(path)]) == 0


def test_what_a_round_left_that_was_undone_is_not_taken_for_the_runs_own(train: Callable[..., Run]) -> None:
    run = train(rounds=3, method="local", sample=1.0)
    (run.path / "finished.json").unlink()
    late = run.directory.client_states / "000" / "000002-000003.safetensors"
    assert late.is_file()
    rewind(run.directory, 2)
    assert not late.exists()
    assert late.with_name("000002-000002.safetensors").is_file()
    assert [record.round for record in run.records()] == [1, 2]
    assert run.directory.checkpoints.rounds() == [2]
    again = resume(run.path, progress=False, from_round=2, rounds=4)
    assert [record.round for record in again.records()] == [1, 2, 3, 4]
    assert again.directory.evaluations()[-1].round == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partition_by": "iid"}, "iid"),
        ({"partition_by": "pathological", "classes_per_client": 3}, "3 classes per client"),
        ({"partition_by": "overlapping", "samples_per_client": 40}, "overlapping Dir(1), 40 samples each"),
        ({"alpha": 0.7}, "Dir(0.7)"),
        ({"partition": "mine.json"}, "partition file mine.json"),
    ],
)
def test_captions_say_how_data_was_dealt_out(
    train: Callable[..., Run],
    changes: dict[str, object],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    clients = [{"train": list(range(9 * c, 9 * c + 6)), "test": list(range(9 * c + 6, 9 * c + 9))} for c in range(6)]
    Path("mine.json").write_text(str({"clients": clients}).replace("'", '"'))
    run = train(rounds=1, **changes)
    caption = notes(collect([run]), [run])
    assert f"3 per round, {words}, 1 × " in caption
    assert ("Dir(" in caption) == ("Dir(" in words)


def test_captions_of_natural_clients(train: Callable[..., Run], tmp_path: Path) -> None:
    import numpy as np

    arrays = {"x": np.arange(72 * 64, dtype=np.uint8).reshape(72, 8, 8), "y": np.arange(72) % 3}
    np.savez(tmp_path / "a.npz", client=np.arange(72) // 18, **arrays)
    values = {"dataset": "npz", "npz": {"path": tmp_path / "a.npz"}, "partition_by": "natural", "clients": 4}
    run = train(rounds=1, **values)
    caption = notes(collect([run]), [run])
    assert "natural clients, 1 × " in caption
    assert "Dir(" not in caption


def test_a_comparison_refuses_a_run_whose_settings_were_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["compare", "--methods", "local", "--clients", "4", "--rounds", "1", "--engine", "serial", "--out", "c"]
    assert execute([*command, "--convnet.width", "4"]) == 0
    assert len(list(csv.reader(Path("c/table.csv").read_text().splitlines()))) == 3
    [settings] = Path("c").glob("*/settings.yaml")
    settings.write_text(settings.read_text().replace("rounds: 1", "rounds: 9"))
    capsys.readouterr()
    assert execute([*command, "--convnet.width", "4"]) == 2
    assert "(training.rounds was 1 and is 9)" in capsys.readouterr().err
