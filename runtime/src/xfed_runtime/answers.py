"""What an exit answers, and how sure it is.

An exit answers with its own softmax, or with the running mean of the exits passed so far, weighted by depth:
Σ_{k≤j} k · softmax(z_k) / Σ_{k≤j} k, exits counted from 1. All of it in float32: traces, PyTorch and devices
call these functions, so that the same logits give the same bits everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Answer = Literal["own", "running"]
ANSWERS: tuple[Answer, ...] = ("own", "running")

Floats = NDArray[np.float32]
Rows = NDArray[np.bool_] | NDArray[np.int64]
"""Which samples of a batch go on: a mask, or positions."""


def softmax(logits: NDArray[Any]) -> Floats:
    """Turn logits into probabilities along the last axis, safe from overflow."""
    logits = np.asarray(logits, dtype=np.float32)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return result


class Answering:
    """Follows one batch through the exits and gives each exit's answer."""

    def __init__(self, kind: Answer) -> None:
        self.kind = kind
        self._exits = 0
        self._sum: Floats | None = None

    def add(self, logits: NDArray[Any]) -> Floats:
        """Give the probabilities (n × classes) that the next exit answers, from its logits."""
        own = softmax(logits)
        if self.kind == "own":
            return own
        self._exits += 1
        weighted = own * np.float32(self._exits)
        self._sum = weighted if self._sum is None else self._sum + weighted
        return self._sum / np.float32(self._exits * (self._exits + 1) // 2)

    def keep(self, rows: Rows) -> None:
        """Go on with these samples of the batch only."""
        if self._sum is not None:
            self._sum = self._sum[rows]


@dataclass(frozen=True)
class Signals:
    """How sure an answer is: arrays of one shape, (n,) for one exit or (n × m) for all.

    `confidence` is the largest probability, `margin` what it is ahead of the second, `entropy` is in nats.
    """

    prediction: NDArray[np.int64]
    confidence: Floats
    margin: Floats
    entropy: Floats

    def __len__(self) -> int:
        return len(self.prediction)

    def __getitem__(self, key: Any) -> Signals:
        """Cut all arrays alike, for instance `[:, j]` for exit j."""
        return Signals(self.prediction[key], self.confidence[key], self.margin[key], self.entropy[key])


class SignalsOf:
    """The signals of probabilities (n × classes), each computed when it is first asked for: a device asks for one."""

    def __init__(self, probabilities: Floats) -> None:
        self._probabilities = probabilities

    def __len__(self) -> int:
        return len(self._probabilities)

    @cached_property
    def prediction(self) -> NDArray[np.int64]:
        """Give the most probable class, the first of equals."""
        first: NDArray[np.int64] = self._probabilities.argmax(axis=-1)
        return first

    @cached_property
    def confidence(self) -> Floats:
        """Give the largest probability."""
        largest: Floats = self._probabilities.max(axis=-1)
        return largest

    @cached_property
    def margin(self) -> Floats:
        """Give what the largest probability is ahead of the second."""
        classes = self._probabilities.shape[-1]
        if classes == 1:
            return self.confidence
        return self.confidence - np.partition(self._probabilities, classes - 2, axis=-1)[..., -2]

    @cached_property
    def entropy(self) -> Floats:
        """Give −Σ p log p, in nats."""
        p = self._probabilities
        logarithms = np.log(np.where(p > 0, p, np.float32(1)))
        result: Floats = np.maximum(-(p * logarithms).sum(axis=-1), np.float32(0))
        return result


def signals(probabilities: Floats) -> SignalsOf:
    """Read prediction, confidence, margin and entropy from probabilities, along the last axis."""
    return SignalsOf(probabilities)


AnySignals = Signals | SignalsOf
