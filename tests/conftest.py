"""Small runs and a bundle that tests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from xfed import Experiment, Run, run

if TYPE_CHECKING:
    from tests.deployed import Deployed

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

SAMPLED: dict[str, Any] = {"method": "fedper", "clients": 20, "sample": 0.1, "eval_clients": 6, "calibration": 0.3}
"""Changes with which clients are evaluated that stand for different numbers of clients: trained ones, and others."""


def tiny(**changes: Any) -> Experiment:
    """A run of about a second; `section={...}` adds component settings."""
    values = {**TINY, **changes}
    if values.get("model", "convnet") != "convnet" and "convnet" not in changes:
        del values["convnet"]
    ways = {"file" if "partition" in values else "dirichlet", values.get("partition_by")}
    if ways & {"iid", "pathological", "natural", "file"} and "alpha" not in changes:
        del values["alpha"]
    return Experiment.from_mapping(values)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Run]:
    """Carry out a tiny run in a folder of its own."""

    def carry_out(name: str = "run", **changes: Any) -> Run:
        return run(tiny(out=tmp_path / name, **changes), progress=False)

    return carry_out


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """Three clients of a ConvNet with BatchNorm on digits, in both formats. Not to be changed: copy it."""
    import torch

    from tests.deployed import deploy, random_clients
    from xfed.bundles import bundle as export
    from xfed.data.dataset import datasets
    from xfed.models.convnet import ConvNet

    digits = datasets.get("digits")().load()
    torch.manual_seed(5)
    network = ConvNet(ConvNet.Settings(width=6, norm="batch")).build(digits.input_shape, 10, "all")
    kept = []
    convert = export.stage_graphs

    def keep(*arguments):  # type: ignore[no-untyped-def]
        kept.extend(convert(*arguments))
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "stage_graphs", keep)
        made = deploy(
            network, digits, tmp_path_factory.mktemp("deployed") / "bundle", random_clients(network, [0, 3, 4])
        )
    return replace(made, stages=kept)
