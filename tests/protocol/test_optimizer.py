"""Server optimizers against numbers computed by hand."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from xfed.protocol.optimizer import ServerOptimizer


def steps(optimizer: ServerOptimizer, averages: list[float]) -> list[float]:
    """Step towards one average after another, from 0."""
    memory: dict[str, Tensor] = {}
    weight, found = 0.0, []
    for average in averages:
        before, towards = {"w": torch.tensor([weight])}, {"w": torch.tensor([average])}
        weight = optimizer.step(memory, before, towards, lambda _: torch.ones(()))["w"].item()
        found.append(weight)
    return found


def test_sgd_goes_part_of_the_way() -> None:
    # 0 + 0.5 · (4 − 0) = 2; 2 + 0.5 · (4 − 2) = 3
    assert steps(ServerOptimizer("sgd", 0.5, 0.9), [4.0, 4.0]) == [2.0, 3.0]


def test_momentum_remembers() -> None:
    # v = 4, w = 4; v = 0.5 · 4 + (4 − 4) = 2, w = 6; v = 0.5 · 2 + (4 − 6) = −1, w = 5
    assert steps(ServerOptimizer("momentum", 1.0, 0.5), [4.0, 4.0, 4.0]) == [4.0, 6.0, 5.0]


def test_adam_divides_by_the_size_of_changes() -> None:
    # Δ = 2: m = 0.1 · 2 = 0.2, v = 0.01 · 4 = 0.04; w = 0.1 · 0.2 / (0.2 + 0.001)
    first = 0.1 * 0.2 / (0.2 + 1e-3)
    change = 2 - first
    mean, square = 0.9 * 0.2 + 0.1 * change, 0.99 * 0.04 + 0.01 * change**2
    second = first + 0.1 * mean / (math.sqrt(square) + 1e-3)
    assert steps(ServerOptimizer("adam", 0.1, 0.9), [2.0, 2.0]) == pytest.approx([first, second])


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_what_nobody_held_stays_and_so_does_its_memory(kind: Literal["sgd", "momentum", "adam"]) -> None:
    """The second of two entries is held in the first and third round: it goes where two rounds would take it."""
    optimizer, memory = ServerOptimizer(kind, 0.1, 0.9), dict[str, Tensor]()
    weights = torch.zeros(2)
    for held in ([1.0, 1.0], [1.0, 0.0], [1.0, 1.0]):
        towards = torch.where(torch.tensor(held) > 0, torch.tensor([2.0, 2.0]), weights)
        weights = optimizer.step(memory, {"w": weights}, {"w": towards}, lambda _, held=held: torch.tensor(held))["w"]
    assert weights.tolist() == pytest.approx([steps(optimizer, [2.0] * 3)[-1], steps(optimizer, [2.0] * 2)[-1]])
