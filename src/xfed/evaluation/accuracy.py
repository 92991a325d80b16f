"""How well each exit of one client's model answers on that client's own test samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from xfed.data.dataset import Dataset
from xfed.data.partition import Partition
from xfed.protocol.client import Client


@dataclass(frozen=True)
class Evaluation:
    """Right answers per exit on one client's test samples."""

    client: int
    samples: int
    correct: tuple[int, ...]


def evaluate(client: Client, *sources: Mapping[str, Tensor]) -> Evaluation:
    """Run the client's model over its test view and count right answers at every exit."""
    view = client.data.test
    exits = range(client.exits)
    outputs = client.trainer.outputs(client.model(*sources), view, exits)
    labels = view.labels()
    correct = tuple(int((outputs.logits[j].argmax(1).cpu() == labels).sum()) for j in exits)
    return Evaluation(client.id, len(view), correct)


def majority_baseline(dataset: Dataset, partition: Partition) -> tuple[float, float]:
    """Score the trivial answer: each client's most frequent training class, on its test samples (mean, std)."""
    labels = dataset.labels.cpu().numpy()
    scores = []
    for split in partition.splits:
        frequent = np.bincount(labels[np.concatenate([split.train, split.calibration])]).argmax()
        scores.append(float((labels[split.test] == frequent).mean()))
    return float(np.mean(scores)), float(np.std(scores))
