"""Small runs that tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xfed import Experiment, Run, run

TINY: dict[str, Any] = {
    "clients": 6,
    "sample": 0.5,
    "rounds": 4,
    "epochs": 1,
    "batch_size": 16,
    "lr": 0.05,
    "alpha": 1.0,
    "eval_every": 2,
    "engine": "serial",
    "convnet": {"width": 4},
}


def tiny(**changes: Any) -> Experiment:
    """A run of about a second; `section={...}` adds component settings."""
    values = {**TINY, **changes}
    if values.get("model", "convnet") != "convnet" and "convnet" not in changes:
        del values["convnet"]
    return Experiment.from_mapping(values)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Run]:
    """Carry out a tiny run in a folder of its own."""

    def carry_out(name: str = "run", **changes: Any) -> Run:
        return run(tiny(out=tmp_path / name, **changes), progress=False)

    return carry_out
