"""A bundle that tests share: converting a network takes seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.inference.deployed import Deployed, deploy, random_clients
from xfed.data.dataset import datasets
from xfed.inference import export
from xfed.models.convnet import ConvNet


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """Three clients of a ConvNet with BatchNorm on digits, in both formats. Not to be changed: copy it."""
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
