"""Steps of local training are torch's own, with a fresh memory; a rate that suits them is the default."""

from __future__ import annotations

import pytest
import torch

from tests.conftest import tiny
from xfed import Experiment, InputError, run
from xfed.training.optimizers import OptimizerKind, Steps

REFERENCES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.8, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.999), weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.999), weight_decay=0.1),
}


@pytest.mark.parametrize("absent", [0, 1])
@pytest.mark.parametrize("kind", list(REFERENCES))
def test_steps_are_those_of_torch(kind: OptimizerKind, absent: int) -> None:
    generator = torch.Generator().manual_seed(1)
    ours = [torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)]
    theirs = [each.clone().requires_grad_() for each in ours]
    steps, reference = Steps(kind, ours, 0.01, 0.8, 0.1), REFERENCES[kind](theirs)
    for number in range(4):
        gradients: list[torch.Tensor | None] = [torch.randn(each.shape, generator=generator) for each in ours]
        if number == absent:
            gradients[1] = None  # the second parameter takes no part in one step, which may be the first
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        steps.take(gradients)
        reference.step()
    for mine, parameter in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, parameter.detach(), rtol=1e-6, atol=1e-7)


def test_the_rate_suits_the_optimizer_unless_given() -> None:
    assert Experiment(dataset="digits").training.lr == 0.05
    assert Experiment(dataset="digits", optimizer="adamw").training.lr == 0.001
    assert Experiment(dataset="digits", optimizer="adam", lr=0.01).training.lr == 0.01
    assert tiny(optimizer="adam").fingerprint("d") != tiny(optimizer="adamw").fingerprint("d")
    with pytest.raises(InputError, match="optimizer is 'rmsprop'"):
        tiny(optimizer="rmsprop")


def test_adam_trains(tmp_path) -> None:  # type: ignore[no-untyped-def]
    losses = {}
    for kind in ("sgd", "adam"):
        rate = {} if kind == "sgd" else {"lr": 0.003}
        made = run(tiny(optimizer=kind, method="local", sample=1.0, out=tmp_path / kind, **rate), progress=False)
        losses[kind] = [record.loss for record in made.records()]
    assert losses["adam"][-1] < losses["adam"][0]
    assert losses["adam"] != losses["sgd"]
