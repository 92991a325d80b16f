from __future__ import annotations

from collections.abc import Callable

import pytest

from xfed import Run
from xfed.export.policies import USUAL, policies_of
from xfed_runtime.policy import Policy


def test_a_ladder_of_budgets_for_each_client(train: Callable[..., Run]) -> None:
    run = train(calibration=0.3)
    full = run.environment()["network"]["exit_macs"][-1]
    everyone, own = policies_of(run, [1, 4])
    assert everyone == {"default": {"policy": USUAL.to_json(), "macs": None, "accuracy": None}}
    assert list(own) == [1, 4]
    for named in own.values():
        budgets = {name: each for name, each in named.items() if name != "default"}
        assert "budget-90%" in budgets
        for name, each in budgets.items():
            assert each["macs"] <= int(name.removeprefix("budget-").removesuffix("%")) / 100 * full
            assert 0 <= each["accuracy"] <= 1
        assert named["default"]["policy"] == USUAL.to_json()
        assert named["default"]["macs"] <= full
    assert own[1]["budget-90%"] != own[4]["budget-90%"]


def test_calibrated_policies_are_the_default(train: Callable[..., Run]) -> None:
    run = train(calibration=0.3)
    folder = run.path / "policies"
    folder.mkdir()
    mine, shared = Policy("margin", threshold=0.25), Policy("entropy", threshold=0.5, answer="running")
    mine.write(folder / "client-000001.json")
    shared.write(folder / "shared.json")
    everyone, own = policies_of(run, [0, 1])
    assert everyone["default"]["policy"] == own[0]["default"]["policy"] == shared.to_json()
    assert own[1]["default"]["policy"] == mine.to_json()


@pytest.mark.parametrize("changes", [{"calibration": 0}, {"exits": "last", "calibration": 0.3}])
def test_nothing_to_calibrate_with(train: Callable[..., Run], changes: dict[str, object]) -> None:
    _, own = policies_of(train(method="fedper", **changes), [0])
    assert own == {0: {"default": {"policy": USUAL.to_json(), "macs": None, "accuracy": None}}}
