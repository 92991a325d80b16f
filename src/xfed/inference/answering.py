"""A client's personal network answers, early where its policy says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from xfed.data.dealing.partition import open_partition
from xfed.errors import InputError
from xfed.inference.runtime import EarlyExitRuntime
from xfed.runs.reader import Run
from xfed_runtime.policy import Policy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from pandas import DataFrame


def predict(run: Run, client: int, inputs: ArrayLike | None, policy: Policy) -> DataFrame:
    """Give a row per input: its class, how sure the network is, the exit left at (from 1) and the MACs spent.

    Without inputs: the client's own test samples, whose true classes stand beside.
    """
    from pandas import DataFrame

    card, network = run.card, run.model(client)
    truth = None
    if inputs is None:
        dataset = run.dataset()
        chosen = torch.from_numpy(open_partition(run.directory.partition)[client].test)
        raw, truth = dataset.inputs[chosen], dataset.labels[chosen].tolist()
    else:
        raw = inputs if isinstance(inputs, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(inputs))
    if tuple(raw.shape[1:]) != tuple(card.input_shape):
        raise InputError(
            f"inputs have shape {tuple(raw.shape)}; allowed for {card.name!r}: any number × {card.input_shape}"
        )
    found = EarlyExitRuntime(network, count=True).predict(card.normalise(raw), policy)
    table = DataFrame(
        {
            "class": [card.classes[label] for label in found.labels],
            "confidence": found.probabilities.max(axis=1),
            "exit": found.exits + 1,
            "MACs": found.macs,
        }
    )
    if truth is not None:
        table.insert(0, "true class", [card.classes[label] for label in truth])
    return table
