"""Traces that tests share: made by hand, drawn, or taken from a finished run's models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xfed import Run
from xfed.evaluation.traces import ExitTrace
from xfed.runs.directory import TraceOf
from xfed_runtime.answers import Signals


def by_hand(confidence: Any, right: Any, owners: Any = 0, full: Any = None) -> ExitTrace:
    """Make a trace from confidences and right answers (n × m); class 0 is right, a wrong exit j says class j + 1.

    `full` (n × m), instead, says where an exit agrees with the last one.
    """
    confidence = np.asarray(confidence, dtype=np.float32)
    n, m = confidence.shape
    agrees = np.asarray(right if full is None else full, dtype=bool)
    prediction = np.where(agrees, 0, np.arange(1, m + 1)).astype(np.int64)
    signals = Signals(prediction, confidence, confidence / 2, (1 - confidence) * 2)
    labels = np.zeros(n, dtype=np.int64)
    return ExitTrace(np.broadcast_to(owners, n).astype(np.int64), np.arange(n), labels, signals, signals)


def drawn(samples: int, exits: int, seed: int, clients: int = 1) -> ExitTrace:
    """Draw a trace in which later exits are surer and more often right, and sure answers more often than others."""
    generator = np.random.default_rng(seed)
    ease = generator.random((samples, 1))
    depth = np.linspace(0.3, 1.0, exits)
    confidence = np.clip(ease * depth + 0.3 * generator.random((samples, exits)), 0.01, 0.999)
    right = generator.random((samples, exits)) < 0.3 + 0.7 * confidence
    return by_hand(confidence, right, np.arange(samples) % clients)


def from_models(run: Run, of: TraceOf) -> ExitTrace:
    """Run the final models of a run over their clients' samples, one by one, without the federation's own code."""
    dataset = run.dataset()
    recorded = run.trace(of)
    assert recorded is not None
    traces = []
    for client in recorded.clients:
        samples: NDArray[np.int64] = recorded.of_client(client).samples
        network = run.model(client)
        with torch.no_grad():
            logits = network(dataset.normalise(dataset.inputs[samples])).logits
        answers = [logits[j].numpy() for j in sorted(logits)]
        traces.append(ExitTrace.of(client, samples, dataset.labels[samples].numpy(), answers))
    return ExitTrace.concatenate(traces)
