"""The one walk from exit to exit: samples that leave are taken out of the batch, the others go on in a smaller one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xfed_runtime.answers import Answering, signals
from xfed_runtime.device import Latencies
from xfed_runtime.policy import Policy

Array = NDArray[Any]
State = TypeVar("State")


@dataclass(frozen=True)
class Answers:
    """What a batch came to, in its order: `logits` are the own ones of the exit taken, `ms` since the batch began."""

    logits: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    exits: NDArray[np.int64]
    ms: NDArray[np.float64]


def walk(
    state: State,
    samples: int,
    exits: int,
    step: Callable[[int, State], tuple[State, Array]],
    rows: Callable[[State, NDArray[np.int64]], State],
    policy: Policy,
    latencies: Latencies | None,
    started: float,
) -> Answers:
    """Answer a batch that began at `started` (perf_counter).

    `step` goes from the state before an exit to the state behind it and the exit's logits; it is called for no exit
    that no sample needs. `rows` gives some samples of a state.
    """
    decider, answering = policy.start(exits, latencies), Answering(policy.answer)
    where = np.arange(samples)
    pieces: list[tuple[Array, ...]] = []
    for exit_index in range(exits):
        state, logits = step(exit_index, state)
        probabilities = answering.add(logits)
        elapsed = 1000 * (time.perf_counter() - started)
        leaves = decider.leaves(exit_index, signals(probabilities), elapsed)
        leaving = np.count_nonzero(leaves)
        if leaving == len(where):
            pieces.append((where, logits, probabilities, np.full(leaving, exit_index), np.full(leaving, elapsed)))
            break
        if leaving:
            taken = np.full(leaving, exit_index), np.full(leaving, elapsed)
            pieces.append((where[leaves], logits[leaves], probabilities[leaves], *taken))
            stay = np.flatnonzero(~leaves)
            where, state = where[stay], rows(state, stay)
            decider.keep(stay)
            answering.keep(stay)
    if len(pieces) == 1:  # all left together: they are in order
        return Answers(*pieces[0][1:])
    order, *columns = (np.concatenate(column) for column in zip(*pieces, strict=True))
    back = np.argsort(order)
    return Answers(*(column[back] for column in columns))
