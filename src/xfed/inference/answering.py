"""A client's personal network answers, early where its policy says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from xfed.data.card import DataCard
from xfed.data.dealing.partition import open_partition
from xfed.errors import InputError
from xfed.inference.runtime import EarlyExitRuntime
from xfed.runs.reader import Run
from xfed_runtime.answers import Signals
from xfed_runtime.device import Device, DeviceError
from xfed_runtime.inputs import ImageInputs, Inputs, InputsError, TextInputs
from xfed_runtime.policy import Policy, simulate
from xfed_runtime.text import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from pandas import DataFrame


def predict(run: Run, client: int, inputs: ArrayLike | None, policy: Policy, device: Path | None = None) -> DataFrame:
    """Give a row per input: its class, how sure the network is, the exit left at (from 1) and the MACs spent.

    Without inputs: the client's own test samples, whose true classes stand beside. Others are refused where a device
    would refuse them. A deadline is kept by the table of a device.
    """
    from pandas import DataFrame

    policy = by_table(policy, len(run.exit_macs), device)
    card, truth = run.card, None
    if inputs is None:
        dataset = run.dataset()
        chosen = torch.from_numpy(open_partition(run.directory.partition)[client].test)
        raw, truth = dataset.inputs[chosen], dataset.labels[chosen].tolist()
    else:
        raw = checked(inputs, card)
    found = EarlyExitRuntime(run.model(client), count=True).predict(card.normalise(raw), policy)
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


def by_table(policy: Policy, exits: int, device: Path | None) -> Policy:
    """Say a deadline as the exit that all inputs reach in time, by a device's table: the clock here is another one."""
    if policy.kind != "anytime":
        if device is not None:
            raise InputError(f"device goes with a deadline; the policy is of kind {policy.kind!r} and has none")
        return policy
    if device is None:
        raise InputError(
            "the policy has a deadline, which needs device, the table of a device's latencies; "
            "'xfed device-bench' makes one"
        )
    try:
        latencies = Device.read(device).by_quantile(policy.quantile)
    except DeviceError as error:
        raise InputError(str(error)) from None
    nothing = np.zeros((1, exits), dtype=np.float32)
    (reached,) = simulate(policy, Signals(nothing.astype(np.int64), nothing, nothing, nothing), latencies)
    return Policy("fixed", exit=int(reached) + 1, answer=policy.answer)


def checked(inputs: Any, card: DataCard) -> Tensor:
    """Take inputs as the data set stores them, batch first, or texts; what its networks cannot take is refused."""
    try:
        raw = inputs_of(card).check(inputs.detach().cpu() if isinstance(inputs, Tensor) else inputs)
    except InputsError as error:
        raise InputError(str(error)) from None
    return torch.from_numpy(np.ascontiguousarray(raw))


def inputs_of(card: DataCard) -> Inputs:
    """Make what checks inputs."""
    if card.kind == "image":
        return ImageInputs(tuple(card.input_shape), card.scale, card.mean, card.std)
    vocabulary = None if card.vocabulary is None else Vocabulary(tuple(card.vocabulary))
    return TextInputs(card.input_shape[0], (card.tokens or 1) if vocabulary is None else len(vocabulary), vocabulary)
