"""Random kills, a few of them: `python -m tests.chaos` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import chaos


@pytest.mark.slow
def test_runs_that_are_killed_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "METHODS", ("xfed", "fedper"))
    outcomes = list(chaos.kills(tmp_path, count=4, seed=3, jobs=1))
    assert len({(outcome.method, outcome.engine) for outcome in outcomes}) == 4
    assert [str(outcome) for outcome in outcomes if outcome.faults] == []


def test_a_fault_fails_the_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fine = chaos.Outcome("xfed", "serial", "command", chaos.signal.SIGKILL, round=3)
    lost = chaos.Outcome("ditto", "serial", "command", chaos.signal.SIGTERM, 3, 2, 0.5, ["2 rounds lost"])
    for outcomes, code in (([fine], 0), ([fine, lost], 1)):
        monkeypatch.setattr(chaos, "kills", lambda *_, outcomes=outcomes: iter(outcomes))
        assert chaos.main(["--kills", str(len(outcomes))]) == code
    assert "2 kills: 2 rounds lost, 1 bit-exact ends" in capsys.readouterr().out
