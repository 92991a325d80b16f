"""Summaries against hand-computed numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition, Split
from xfed.evaluation.accuracy import majority_baseline
from xfed.evaluation.summary import RoundAccuracy, summarise


def evaluation(round: int, accuracies: list[list[float]], trained: list[bool] | None = None) -> RoundAccuracy:
    rows = np.array(accuracies)
    return RoundAccuracy(round, rows, np.array(trained or [True] * len(rows)), np.ones(len(rows)))


def test_mean_over_exits_then_clients_with_population_std() -> None:
    one = evaluation(1, [[0.2, 0.4], [0.6, 1.0]])
    # clients: 0.3 and 0.8; mean 0.55; population std 0.25
    assert one.mean == pytest.approx(0.55)
    assert one.std == pytest.approx(0.25)
    assert one.exits == pytest.approx([0.4, 0.7])
    assert one.exit_stds == pytest.approx([0.2, 0.3])


def test_last_last5_best() -> None:
    means = [0.9, 0.1, 0.2, 0.3, 0.4, 0.5]
    summary = summarise([evaluation(10 + i, [[mean]]) for i, mean in enumerate(means)])
    assert summary.last.mean == pytest.approx(0.5)
    assert summary.last5 == pytest.approx(0.3)  # (0.1 + 0.2 + 0.3 + 0.4 + 0.5) / 5
    assert (summary.best.round, summary.best.mean) == (10, pytest.approx(0.9))


def test_seen_and_unseen_apart() -> None:
    mixed = evaluation(1, [[0.2], [0.8], [0.6]], [False, True, True])
    seen, unseen = mixed.only(trained=True), mixed.only(trained=False)
    assert seen is not None
    assert unseen is not None
    assert (seen.mean, unseen.mean) == (pytest.approx(0.7), pytest.approx(0.2))
    assert evaluation(1, [[0.5]]).only(trained=False) is None


def test_majority_baseline_is_learned_on_training_and_scored_on_test_samples() -> None:
    labels = torch.tensor([0, 0, 1, 0, 1, 1, 1, 1, 0, 1])
    dataset = Dataset("toy", torch.zeros(10, 1, 2, 2, dtype=torch.uint8), labels, ("a", "b"))
    splits = (
        Split(train=np.array([0, 1]), calibration=np.array([2]), test=np.array([3, 4])),  # 0 0 1 -> 0; test 0 1: 1/2
        Split(train=np.array([5, 6]), calibration=np.array([], dtype=np.int64), test=np.array([7, 9])),  # 1; test 1 1
    )
    mean, std = majority_baseline(dataset, Partition.of(splits))
    assert (mean, std) == (pytest.approx(0.75), pytest.approx(0.25))


def test_majority_baseline_of_many_clients_is_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xfed.data.dealing.partition.CLIENTS_TOGETHER", 7)
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 600)
    dataset = Dataset("toy", torch.zeros(600, 1, 2, 2, dtype=torch.uint8), torch.from_numpy(labels), tuple("abcd"))
    splits = [Split(*np.split(rng.choice(600, 20, replace=False), [rng.integers(1, 8), 12])) for _ in range(45)]
    scores = []
    for split in splits:
        most = np.bincount(labels[np.concatenate([split.train, split.calibration])]).argmax()
        scores.append(np.mean(labels[split.test] == most))
    assert majority_baseline(dataset, Partition.of(splits)) == (
        pytest.approx(np.mean(scores)),
        pytest.approx(np.std(scores)),
    )
