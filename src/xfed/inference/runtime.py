"""Early exit in PyTorch: stages that no sample needs any more do not run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.models.counting import Counter, counting
from xfed.models.network import EarlyExitNetwork, StageState, rows
from xfed_runtime.answers import Answering, signals
from xfed_runtime.policy import Policy


@dataclass(frozen=True)
class Prediction:
    """The answer for one sample: class, probabilities, the exit it came from (from 0), MACs spent on it."""

    label: int
    probabilities: NDArray[np.float32]
    exit: int
    macs: int | None


@dataclass(frozen=True)
class Predictions:
    """The answers for a batch, in the order of its samples; `executed` is what all of them together cost."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    exits: NDArray[np.int64]
    macs: NDArray[np.int64] | None
    executed: int | None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, sample: int) -> Prediction:
        """Give the answer for one sample."""
        macs = None if self.macs is None else int(self.macs[sample])
        return Prediction(int(self.labels[sample]), self.probabilities[sample], int(self.exits[sample]), macs)


class EarlyExitRuntime:
    """Answers with a network and a policy, one sample or a batch at a time.

    After each exit the samples that leave are taken out, the others go on in a smaller batch, and the answers come
    back in the order of the inputs. With `count`, MACs are counted from the kernels that really ran, never looked
    up; watching every kernel takes time, so it is off where latency matters, and nothing else changes. `latencies`
    (ms by exit) are for policies with a deadline, which is held by the clock.
    """

    def __init__(
        self, network: EarlyExitNetwork, latencies: Sequence[float] | None = None, count: bool = False
    ) -> None:
        self.network = network.eval()
        self.latencies = latencies
        self.count = count

    def predict(self, inputs: Tensor, policy: Policy) -> Predictions:
        """Answer a batch of inputs as the network takes them, batch first."""
        started = time.perf_counter()
        decider = policy.start(len(self.network.exits), self.latencies)
        answering = Answering(policy.answer)
        collected = _Collected(len(inputs))
        state: StageState = inputs
        stage = 0
        with _watching(self.count) as counter:
            for j, place in enumerate(self.network.places):
                while stage <= place:
                    state = self.network.stage(stage, state)
                    stage += 1
                logits = self.network.exits[j](state)[1]
                probabilities = answering.add(logits.cpu().numpy())
                found = signals(probabilities)
                leaves = decider.leaves(j, found, 1000 * (time.perf_counter() - started))
                collected.spend(counter)
                if leaves.all():
                    collected.leave(leaves, j, found.prediction, probabilities)
                    break
                if leaves.any():
                    collected.leave(leaves, j, found.prediction, probabilities)
                    stay = np.flatnonzero(~leaves)
                    decider.keep(stay)
                    answering.keep(stay)
                    state = rows(state, torch.from_numpy(stay).to(logits.device))
        return collected.predictions(self.count)


class _Collected:
    """Gathers answers as samples leave; knows which of the batch are still on their way."""

    def __init__(self, samples: int) -> None:
        self.on_the_way = np.arange(samples)
        self.labels = np.zeros(samples, dtype=np.int64)
        self.exits = np.zeros(samples, dtype=np.int64)
        self.macs = np.zeros(samples, dtype=np.int64)
        self.probabilities: NDArray[np.float32] | None = None
        self.executed = 0
        self._spent = 0

    def spend(self, counter: Counter | None) -> None:
        """Charge what ran since the last time to the samples on their way, in equal parts."""
        if counter is not None and len(self.on_the_way):
            self.executed += counter.macs
            self._spent += counter.macs // len(self.on_the_way)
            counter.reset()

    def leave(
        self, leaves: NDArray[np.bool_], j: int, labels: NDArray[np.int64], probabilities: NDArray[np.float32]
    ) -> None:
        """Note the answers of the samples that leave."""
        if self.probabilities is None:
            self.probabilities = np.zeros((len(self.labels), probabilities.shape[1]), dtype=np.float32)
        places = self.on_the_way[leaves]
        self.labels[places] = labels[leaves]
        self.probabilities[places] = probabilities[leaves]
        self.exits[places] = j
        self.macs[places] = self._spent
        self.on_the_way = self.on_the_way[~leaves]

    def predictions(self, counted: bool) -> Predictions:
        """Give the answers in the order of the inputs."""
        assert self.probabilities is not None
        macs, executed = (self.macs, self.executed) if counted else (None, None)
        return Predictions(self.labels, self.probabilities, self.exits, macs, executed)


@contextmanager
def _watching(count: bool) -> Iterator[Counter | None]:
    """Compute without gradients, and count kernels if asked to."""
    if count:
        with counting() as counter:
            yield counter
    else:
        with torch.inference_mode():
            yield None
