"""Networks and inputs that the tests of this folder share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from xfed.models.network import EarlyExitNetwork, ExitPlacement, models, seeded


def build(
    name: str, shape: tuple[int, ...], classes: int, exits: ExitPlacement = "all", seed: int = 1, **settings: Any
) -> EarlyExitNetwork:
    """Build a registered network from settings as a user gives them."""
    component = models.get(name)
    return seeded(component(component.resolve(settings)), shape, classes, exits, seed)


def small(name: str, exits: ExitPlacement = "all", **settings: Any) -> EarlyExitNetwork:
    """Build a network of a few thousand parameters, for the inputs that `batch` gives."""
    tiny = {
        "convnet": {"width": 8},
        "resnet18": {"width": 4, "depth": 1},
        "transformer": {"vocabulary": 50, "width": 12, "feedforward": 20, "depth": 3},
    }
    shape = (9,) if name == "transformer" else (3, 32, 32)
    return build(name, shape, 5, exits, **{**tiny[name], **settings})


def batch(name: str, size: int = 4) -> Tensor:
    """Draw inputs: images, or texts of 3, 4, 5, ... tokens that begin with <cls> and are padded."""
    generator = torch.Generator().manual_seed(7)
    if name != "transformer":
        return torch.randn(size, 3, 32, 32, generator=generator)
    ids = torch.randint(2, 50, (size, 9), generator=generator)
    ids[:, 0] = 1
    for row in range(size):
        ids[row, row + 3 :] = 0
    return ids
