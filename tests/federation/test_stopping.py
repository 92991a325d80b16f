"""What stops a run: complete rounds are kept, and going on changes nothing that is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import tiny
from xfed import InputError, resume, run
from xfed.evaluation.summary import RoundAccuracy
from xfed.federation.watching import Callback
from xfed.runs.reader import open_run
from xfed.runs.records import RoundRecord


def stops(error: BaseException) -> Callback:
    def after(record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        if record.round == 2:
            raise error

    return after


@pytest.mark.parametrize("error", [RuntimeError("mine"), InputError("mine"), KeyboardInterrupt()])
def test_whatever_stops_a_run_loses_no_complete_round(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        run(tiny(out=tmp_path / "run", rounds=3, checkpoint_every=10), progress=False, watchers=[stops(error)])
    assert open_run(tmp_path / "run").directory.checkpoints.rounds() == [2]


def test_tuning_costs_the_same_after_an_interruption(tmp_path: Path) -> None:
    """A model that depends on its client alone is tuned once, when it has changed; a resumed run tunes it again."""
    experiment = tiny(method="local", refit=0.03, rounds=4, sample=0.5, eval_every=1)
    whole = run(experiment.changed(out=tmp_path / "whole"), progress=False)
    with pytest.raises(KeyboardInterrupt):
        run(experiment.changed(out=tmp_path / "part"), progress=False, watchers=[stops(KeyboardInterrupt())])
    resumed = resume(tmp_path / "part", progress=False)
    costs = [[record.tuning_macs for record in each.records()] for each in (whole, resumed)]
    assert costs[0] == costs[1]
    assert 0 < costs[0][2] < costs[0][3], "the last evaluation tunes everyone"


def test_a_stray_file_among_states_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tiny(out=tmp_path / "run", rounds=3), progress=False, watchers=[stops(KeyboardInterrupt())])
    states = open_run(tmp_path / "run").directory.client_states
    strays = [states / ".DS_Store", next(states.iterdir()) / "notes.safetensors"]
    for stray in strays:
        stray.touch()
    assert resume(tmp_path / "run", progress=False).finished
    assert all(stray.exists() for stray in strays)
