"""What PyTorch answers to a few inputs, kept in the bundle: whoever opens it, in any language, can compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from xfed.data.dataset import Dataset
from xfed.models.network import EarlyExitNetwork

REFERENCED, SAMPLES = 3, 4
"""Clients that have a reference, and inputs in it."""


def few(clients: Sequence[int], most: int) -> list[int]:
    """Choose some clients, spread over all."""
    places = np.linspace(0, len(clients) - 1, min(most, len(clients))).round().astype(int)
    return [clients[place] for place in places]


def reference(network: EarlyExitNetwork, dataset: Dataset) -> dict[str, Any]:
    """Answer noise with a network: raw inputs, and the logits of every exit (exits × samples × classes)."""
    raw = noise(dataset, SAMPLES)
    with torch.no_grad():
        found = network.eval()(dataset.normalise(raw)).logits
    return {"inputs": raw.tolist(), "logits": [found[index].tolist() for index in sorted(found)]}


def noise(dataset: Dataset, samples: int) -> torch.Tensor:
    """Draw raw inputs of the data set's kind: pixels, or rows of token ids."""
    generator = torch.Generator().manual_seed(0)
    shape = (samples, *dataset.input_shape)
    if dataset.kind == "image":
        return torch.randint(0, int(dataset.scale) + 1, shape, generator=generator)
    return torch.randint(1, int(dataset.inputs.max()) + 1, shape, generator=generator)
