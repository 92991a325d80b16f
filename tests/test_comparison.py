"""Plans: what is there is found, what is alike is done once, what was begun is continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import tiny
from xfed import InputError
from xfed.comparison import carry_out, plan_runs
from xfed.estimates import seconds_left
from xfed.sweep import plan_sweep, read_grid


def stamps(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}


def test_nothing_finished_is_repeated(tmp_path: Path) -> None:
    experiments = [tiny(rounds=1), tiny(rounds=1, method="fedper"), tiny(rounds=1)]
    planned = plan_runs(experiments, tmp_path)
    assert [each.rounds_left for each in planned] == [1, 1, 1]
    heard: list[int] = []
    runs = carry_out(planned, progress=False, before=lambda left: heard.append(len(left)))
    assert heard == [2, 1], "two of the three are the same"
    assert runs[0].path == runs[2].path
    before = stamps(tmp_path)
    again = plan_runs(experiments, tmp_path)
    assert all(each.done for each in again)
    carry_out(again, progress=False)
    assert stamps(tmp_path) == before


def test_a_begun_run_is_continued_and_a_bare_beginning_is_started_anew(tmp_path: Path) -> None:
    (planned,) = plan_runs([tiny(rounds=2)], tmp_path)
    planned.root.mkdir()
    (planned.root / "data.json").write_text("{}")
    (found,) = carry_out([planned], progress=False)
    assert found.finished
    (found.path / "finished.json").unlink()
    (again,) = plan_runs([tiny(rounds=2)], tmp_path)
    assert (again.done, again.rounds_left, again.root) == (False, 0, found.path)
    assert carry_out([again], progress=False)[0].finished


def test_estimate_from_runs_of_the_same_size(tmp_path: Path) -> None:
    (found,) = carry_out(plan_runs([tiny(rounds=2)], tmp_path), progress=False)
    seconds = [record.train_seconds + record.evaluation_seconds for record in found.records()]
    planned = plan_runs([tiny(rounds=2), tiny(rounds=5, method="fedper"), tiny(rounds=5, method="fedper")], tmp_path)
    assert seconds_left(planned) == pytest.approx(5 * sum(seconds) / 2)


def test_estimate_from_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xfed.estimates._step_seconds", lambda planned: 0.5)
    planned = plan_runs([tiny(rounds=4, calibration=0.0, epochs=2)], tmp_path)
    steps = 3 * 2 * (1797 / 6 * 0.75) / 16
    assert seconds_left(planned) == pytest.approx(4 * steps * 0.5)


def test_a_grid(tmp_path: Path) -> None:
    grid = read_grid(["xfed.mu=0.3,0.6", "alpha=0.1,1"])
    points = plan_sweep({"clients": 6, "fedprox.mu": 0.5}, ["xfed", "fedprox"], grid, [1, 2])
    assert [(point.method, dict(point.varied)) for point in points] == [
        ("xfed", {"xfed.mu": 0.3, "alpha": 0.1}),
        ("xfed", {"xfed.mu": 0.3, "alpha": 1}),
        ("xfed", {"xfed.mu": 0.6, "alpha": 0.1}),
        ("xfed", {"xfed.mu": 0.6, "alpha": 1}),
        ("fedprox", {"alpha": 0.1}),
        ("fedprox", {"alpha": 1}),
    ]
    assert [e.seed for e in points[0].experiments] == [1, 2]
    assert points[2].experiments[0].settings["method"]["mu"] == 0.6
    assert points[4].experiments[0].settings["method"]["mu"] == 0.5


@pytest.mark.parametrize("line", ["alpha", "alpha=", "alpha=1,1"])
def test_a_grid_that_is_none(line: str) -> None:
    with pytest.raises(InputError, match="--vary"):
        read_grid([line])


def test_a_setting_of_a_method_that_is_not_swept() -> None:
    with pytest.raises(InputError, match=r"'fedprox\.mu' is for method 'fedprox', which is not among those swept"):
        plan_sweep({}, ["xfed"], {"fedprox.mu": [1.0]}, [1])
    with pytest.raises(InputError, match="--vary seed is not for settings; give --seeds"):
        plan_sweep({}, ["xfed"], {"seed": [1, 2]}, [1])
