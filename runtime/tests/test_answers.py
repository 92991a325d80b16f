"""Softmax, running answers and signals, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xfed_runtime.answers import Answering, signals, softmax

LOGITS = [np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])), np.log(np.array([[0.2, 0.2, 0.6], [0.6, 0.3, 0.1]]))]


def test_softmax_by_hand_and_without_overflow() -> None:
    assert softmax(np.array([0.0, math.log(3.0)])) == pytest.approx([0.25, 0.75])
    assert softmax(np.array([[1000.0, 0.0]])).tolist() == [[1.0, 0.0]]
    assert softmax(np.zeros((2, 4), dtype=np.float64)).dtype == np.float32


def test_own_answers_are_each_exits_softmax() -> None:
    answering = Answering("own")
    for logits in LOGITS:
        assert answering.add(logits) == pytest.approx(np.exp(logits), abs=1e-6)


def test_running_answers_weigh_exits_by_depth() -> None:
    answering = Answering("running")
    assert answering.add(LOGITS[0]) == pytest.approx(np.exp(LOGITS[0]), abs=1e-6)
    by_hand = [[(0.5 + 2 * 0.2) / 3, (0.3 + 2 * 0.2) / 3, (0.2 + 2 * 0.6) / 3], [1.3 / 3, 0.8 / 3, 0.9 / 3]]
    assert answering.add(LOGITS[1]) == pytest.approx(np.array(by_hand), abs=1e-6)


@pytest.mark.parametrize("rows", [np.array([False, True]), np.array([1])])
def test_running_answers_go_on_with_survivors(rows: np.ndarray) -> None:
    answering = Answering("running")
    answering.add(LOGITS[0])
    answering.keep(rows)
    assert answering.add(LOGITS[1][1:]) == pytest.approx(np.array([[1.3 / 3, 0.8 / 3, 0.9 / 3]]), abs=1e-6)


def test_a_saturated_running_answer_never_exceeds_one() -> None:
    answering = Answering("running")
    for _ in range(9):
        assert answering.add(np.array([[300.0, 0.0, 0.0]])).max() == 1.0


def test_signals_by_hand() -> None:
    found = signals(np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0]], dtype=np.float32))
    assert found.prediction.tolist() == [0, 2]
    assert found.confidence == pytest.approx([0.5, 1.0])
    assert found.margin == pytest.approx([0.2, 1.0])
    expected = -(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2))
    assert found.entropy == pytest.approx([expected, 0.0])
    assert {array.dtype for array in (found.confidence, found.margin, found.entropy)} == {np.dtype(np.float32)}


def test_signals_of_a_single_class() -> None:
    found = signals(np.ones((2, 1), dtype=np.float32))
    assert (found.margin.tolist(), found.entropy.tolist()) == ([1.0, 1.0], [0.0, 0.0])
