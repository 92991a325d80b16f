"""How long runs that are left will take: from runs of the same size that are there, else from one timed step."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from xfed.comparison import Planned
from xfed.data.dealing.partitioning import TRAIN_SHARE
from xfed.rehearsal import workers_of
from xfed.threads import single_thread

TIMED_STEPS, TIMED_SAMPLES = 4, 16
_timed: dict[str, float] = {}
"""Seconds of a step, by size."""


def seconds_left(planned: Sequence[Planned]) -> float:
    """Estimate what is left of a plan, in seconds; methods are taken to cost alike."""
    known: dict[str, list[float]] = {}
    for each in planned:
        if each.found is not None:
            seconds = [record.train_seconds + record.evaluation_seconds for record in each.found.records()]
            known.setdefault(_size(each), []).extend(seconds)
    total = 0.0
    for each in {each.root: each for each in planned if not each.done}.values():
        measured = known.get(_size(each))
        a_round = sum(measured) / len(measured) if measured else _expected_round(each)
        total += each.rounds_left * a_round
    return total


def _size(planned: Planned) -> str:
    """Identify what decides the cost of a round, besides the method."""
    e = planned.experiment
    own = {role: e.settings.get(role) for role in ("dataset", "model")}
    t = e.training
    return json.dumps([e.dataset, e.model, e.exits, own, e.dealing.clients, t.sample, t.epochs, t.batch_size])


def _expected_round(planned: Planned) -> float:
    e = planned.experiment
    batch = e.training.batch_size
    samples = len(planned.data) / e.dealing.clients * TRAIN_SHARE * (1 - e.dealing.calibration)
    steps = e.cohort_size * e.training.epochs * samples / batch
    return steps * _step_seconds(planned) / workers_of(e)


def _step_seconds(planned: Planned) -> float:
    """Time a step of joint training on one thread, once for each size: the best of some steps with fewer samples."""
    key = _size(planned)
    if key in _timed:
        return _timed[key]
    e, card = planned.experiment, planned.data.card
    network = e.network(card.input_shape, len(card.classes))
    batch = min(e.training.batch_size, TIMED_SAMPLES)
    inputs, labels = card.normalise(card.drawn(batch)), torch.zeros(batch, dtype=torch.int64)
    seconds = []
    with single_thread():
        for _ in range(TIMED_STEPS):
            started = time.perf_counter()
            losses = [F.cross_entropy(logits, labels) for logits in network(inputs).logits.values()]
            torch.stack(losses).sum().backward()
            seconds.append(time.perf_counter() - started)
    _timed[key] = min(seconds) * e.training.batch_size / batch
    return _timed[key]
