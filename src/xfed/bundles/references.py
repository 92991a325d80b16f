"""What PyTorch answers to a few inputs, kept in the bundle: whoever opens it, in any language, can compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from xfed.data.card import DataCard
from xfed.models.network import EarlyExitNetwork

REFERENCED, SAMPLES = 3, 4
"""Clients that have a reference, and inputs in it."""


def few(clients: Sequence[int], most: int) -> list[int]:
    """Choose some clients, spread over all."""
    places = np.linspace(0, len(clients) - 1, min(most, len(clients))).round().astype(int)
    return [clients[place] for place in places]


def reference(network: EarlyExitNetwork, data: DataCard) -> dict[str, Any]:
    """Answer noise with a network: raw inputs, and the logits of every exit (exits × samples × classes)."""
    raw = data.drawn(SAMPLES)
    with torch.no_grad():
        found = network.eval()(data.normalise(raw)).logits
    return {"inputs": raw.tolist(), "logits": [found[index].tolist() for index in sorted(found)]}
