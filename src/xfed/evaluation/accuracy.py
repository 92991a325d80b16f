"""How well each exit of a client's model answers on that client's own samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.data.views import View
from xfed.evaluation.metrics import METRICS
from xfed.evaluation.traces import ExitTrace
from xfed.models.layout import ModelState
from xfed.models.parts import Parts
from xfed.protocol.client import Client, Personal
from xfed_runtime.answers import ANSWERS, Answer, Answering

TRUNK = {part.key for part in Parts.BACKBONE | Parts.STATISTICS}
"""What clients must have in common to be evaluated in one pass."""
SMALLEST = np.finfo(np.float32).tiny
"""Stands for a probability of 0, which has no logarithm."""


@dataclass(frozen=True)
class Evaluation:
    """What every exit answered on one client's test samples, and on its calibration samples where asked for."""

    client: int
    test: ExitTrace
    calibration: ExitTrace | None
    alone: bool
    """Evaluated in passes of its own: the numbers depend on nobody else."""
    metrics: Mapping[str, tuple[float, ...]]
    """Further figures of the test samples, each per exit."""

    @property
    def correct(self) -> dict[Answer, tuple[int, ...]]:
        """Right answers per exit on the test samples, by kind of answer."""
        return {kind: tuple(self.test.right(kind).sum(0).tolist()) for kind in ANSWERS}

    @property
    def finite(self) -> bool:
        """Tell whether all answers are numbers: of others, the highest is no prediction."""
        traces = [self.test] if self.calibration is None else [self.test, self.calibration]
        return all(bool(np.isfinite(trace.own.confidence).all()) for trace in traces)


def evaluate(
    members: Iterable[tuple[Client, Personal]],
    calibration: bool,
    metrics: Sequence[str] = (),
    answers: Answer = "own",
) -> dict[int, Evaluation]:
    """Evaluate clients: those on what all share in one pass, each with its own exits; the others one by one.

    Metrics are of the `answers` that count in the run; accuracy is counted for both kinds. Members are taken one by
    one, so of whole personal models only one is in memory.
    """
    together: list[tuple[Client, Mapping[str, Tensor]]] = []
    found: list[Evaluation] = []
    for client, personal in members:
        member = (client, {**personal.shared, **personal.own})
        if TRUNK & personal.own.keys():
            found += _evaluate([member], calibration, metrics, answers, alone=True)
        else:
            together.append(member)
    if together:
        found += _evaluate(together, calibration, metrics, answers, alone=False)
    return {evaluation.client: evaluation for evaluation in found}


def _evaluate(
    members: Sequence[tuple[Client, Mapping[str, Tensor]]],
    calibration: bool,
    metrics: Sequence[str],
    answers: Answer,
    alone: bool,
) -> Iterator[Evaluation]:
    clients = [client for client, _ in members]
    model = clients[0].model(members[0][1])
    exits = [client.complete(parts, Parts.EXITS) for client, parts in members]
    test = _outputs(clients, [client.data.test for client in clients], model, exits)
    aside: Sequence[_Outputs | None] = [None] * len(members)
    if calibration:
        aside = _outputs(clients, [client.data.calibration for client in clients], model, exits)
    for client, tested, calibrated in zip(clients, test, aside, strict=True):
        said = tested.said(answers) if metrics else ()
        figures = {name: tuple(float(METRICS[name](each, tested.labels)) for each in said) for name in metrics}
        calibration_trace = None if calibrated is None else calibrated.trace(client.id)
        yield Evaluation(client.id, tested.trace(client.id), calibration_trace, alone, figures)


@dataclass(frozen=True)
class _Outputs:
    """What all exits said of a view's samples."""

    samples: NDArray[np.int64]
    labels: NDArray[np.int64]
    logits: Sequence[NDArray[np.float32]]

    def trace(self, client: int) -> ExitTrace:
        return ExitTrace.of(client, self.samples, self.labels, self.logits)

    def said(self, answers: Answer) -> Sequence[NDArray[np.float32]]:
        """Give each exit's answers as logits: its own, or logarithms of the running means, whose softmax they are."""
        if answers == "own":
            return self.logits
        running = Answering("running")
        return [np.log(np.maximum(running.add(logits), SMALLEST)) for logits in self.logits]


def _outputs(
    clients: Sequence[Client], views: Sequence[View], model: ModelState, exits: Sequence[Mapping[str, Tensor]]
) -> list[_Outputs]:
    logits = clients[0].trainer.outputs_together(model, list(zip(views, exits, strict=True)))
    return [
        _Outputs(view.indices.cpu().numpy(), view.labels().numpy(), [found[j].cpu().numpy() for j in sorted(found)])
        for view, found in zip(views, logits, strict=True)
    ]


def majority_baseline(dataset: Dataset, partition: Partition) -> tuple[float, float]:
    """Score the trivial answer: each client's most frequent training class, on its test samples (mean, std)."""
    labels, classes = dataset.labels.cpu().numpy(), len(dataset.classes)
    scores = []
    for some in partition.blocks():
        frequent = some.class_counts(labels, classes, ("train", "calibration")).argmax(axis=1)
        tested = some.class_counts(labels, classes, ("test",))
        scores.append(tested[np.arange(len(some)), frequent] / tested.sum(axis=1))
    together = np.concatenate(scores)
    return float(together.mean()), float(together.std())
