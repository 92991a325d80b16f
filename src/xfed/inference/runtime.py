"""Early exit in PyTorch: stages that no sample needs any more do not run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.models.counting import Counter, counting
from xfed.models.network import EarlyExitNetwork, StageState, hidden, rows
from xfed_runtime.device import Latencies
from xfed_runtime.policy import Policy
from xfed_runtime.walking import walk


@dataclass(frozen=True)
class Answered:
    """The answers for a batch, in the order of its samples; `executed` is what all of them together cost."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    exits: NDArray[np.int64]
    macs: NDArray[np.int64] | None
    executed: int | None

    def __len__(self) -> int:
        return len(self.labels)


class EarlyExitRuntime:
    """Answers with a network and a policy, one sample or a batch at a time.

    After each exit the samples that leave are taken out, the others go on in a smaller batch, and the answers come
    back in the order of the inputs. With `count`, MACs are counted from the kernels that really ran, never looked
    up; watching every kernel takes time, so it is off where latency matters, and nothing else changes. `latencies`
    (ms by exit) are for policies with a deadline, which is held by the clock.
    """

    def __init__(self, network: EarlyExitNetwork, latencies: Latencies | None = None, count: bool = False) -> None:
        self.network = network.eval()
        self.latencies = latencies
        self.count = count

    def predict(self, inputs: Tensor, policy: Policy) -> Answered:
        """Answer a batch of inputs as the network takes them, batch first."""
        started = time.perf_counter()
        places = self.network.places
        spent: list[tuple[int, int]] = []

        def step(j: int, state: StageState) -> tuple[StageState, NDArray[np.float32]]:
            samples = len(hidden(state))
            for stage in range(places[j - 1] + 1 if j else 0, places[j] + 1):
                state = self.network.stage(stage, state)
            logits = self.network.exits[j](state)[1]
            if counter is not None:
                spent.append((counter.macs, samples))
                counter.reset()
            return state, logits.cpu().numpy()

        state: StageState = inputs
        with _watching(self.count) as counter:
            found = walk(state, len(inputs), len(places), step, _rows, policy, self.latencies, started)
        macs = executed = None
        if self.count:
            macs = np.cumsum([all_of_them // max(samples, 1) for all_of_them, samples in spent])[found.exits]
            executed = sum(all_of_them for all_of_them, _ in spent)
        return Answered(found.probabilities.argmax(axis=1), found.probabilities, found.exits, macs, executed)


def _rows(state: StageState, chosen: NDArray[np.int64]) -> StageState:
    return rows(state, torch.from_numpy(chosen).to(hidden(state).device))


@contextmanager
def _watching(count: bool) -> Iterator[Counter | None]:
    """Compute without gradients, and count kernels if asked to."""
    if count:
        with counting() as counter:
            yield counter
    else:
        with torch.inference_mode():
            yield None
