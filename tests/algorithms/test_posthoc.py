"""Shallow exits after the fact: the federation is the single-exit one to the bit; only shallow exits train on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.bits import final_models
from tests.conftest import tiny
from xfed import InputError, Run, run


def test_backbone_and_last_exit_are_those_of_single_exit_fedper(train: Callable[..., Run]) -> None:
    posthoc = final_models(train("posthoc", method="posthoc"))
    single = final_models(train("single", method="fedper", exits="last"))
    assert len(single) > 6
    for name, tensor in single.items():
        matching = name.replace("exits.0.", "exits.2.")
        assert torch.equal(tensor, posthoc[matching]), name


def test_shallow_exits_are_trained_on_the_frozen_model_alone(train: Callable[..., Run]) -> None:
    """One full-batch epoch without momentum is one gradient step from the initial exit, computed here by autograd."""
    found = train(
        method="posthoc", rounds=1, epochs=1, momentum=0.0, weight_decay=0.0, batch_size=2000,
        posthoc={"shallow_epochs": 1, "shallow_rate": 0.5},
    )  # fmt: skip
    client = 0
    network, dataset = found.model(client), found.dataset()
    samples = dataset_rows(found, client)
    with torch.no_grad():
        feature = network(dataset.normalise(dataset.inputs[samples])).features[0]
    start = found.network().exits[0]
    weight = start.linear.weight.detach().clone().requires_grad_()
    bias = start.linear.bias.detach().clone().requires_grad_()
    F.cross_entropy(feature @ weight.T + bias, dataset.labels[samples]).backward()
    trained = network.exits[0].linear
    assert weight.grad is not None
    assert bias.grad is not None
    torch.testing.assert_close(trained.weight, (weight - 0.5 * weight.grad).detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trained.bias, (bias - 0.5 * bias.grad).detach(), rtol=1e-5, atol=1e-6)
    assert found.summary().best is None
    assert found.records()[-1].tuning_macs > 0


def dataset_rows(found: Run, client: int) -> torch.Tensor:
    from xfed.data.dealing.partition import open_partition

    return torch.as_tensor(open_partition(found.directory.partition)[client].train)


def test_local_distillation_is_refused() -> None:
    with pytest.raises(InputError, match="local_kd is 'sum': method 'posthoc' trains one exit at a time; allowed: off"):
        run(tiny(method="posthoc", local_kd="sum"), progress=False)
