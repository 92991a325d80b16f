"""Views of a client's samples: batches, orders, text cut to its length."""

from __future__ import annotations

import numpy as np
import torch

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Split
from xfed.data.views import ClientData, Samples, View


def some_text() -> Dataset:
    rows = torch.tensor([[1, 3, 0, 0], [1, 4, 7, 0], [1, 0, 0, 0], [1, 0, 8, 0]], dtype=torch.int32)
    return Dataset("some", rows, torch.tensor([0, 1, 1, 0]), ("a", "b"), kind="text")


def split_of(*train: int) -> Split:
    none = np.array([], dtype=np.int64)
    return Split(train=np.array(train, dtype=np.int64), calibration=none, test=np.array([2]))


def test_views_of_text() -> None:
    views = ClientData.of(some_text(), split_of(3, 1))
    [(positions, inputs, labels)] = views.train.in_order(5)
    assert (inputs.dtype, inputs.tolist(), labels.tolist()) == (torch.int64, [[1, 0, 8], [1, 4, 7]], [0, 1])
    assert positions.tolist() == [0, 1]
    assert (len(views.calibration), views.test.labels().tolist()) == (0, [1])


def test_text_is_cut_to_the_longest_row_of_each_batch() -> None:
    view = ClientData.of(some_text(), split_of(0, 2, 2, 2, 1)).train
    widths = [inputs.shape[1] for _, inputs, _ in view.in_order(2)]
    assert widths == [2, 1, 3]


def test_text_without_samples_or_without_tokens_keeps_one_column() -> None:
    padding = Dataset("some", torch.zeros(1, 3, dtype=torch.int32), torch.tensor([0]), ("a",), kind="text")
    for indices in ([], [0]):
        [(_, inputs, labels)] = View(padding, torch.tensor(indices, dtype=torch.int64)).in_order(4)
        assert inputs.shape == (len(indices), 1)
        assert len(labels) == len(indices)


def test_views_of_images() -> None:
    data = Dataset(
        "some", torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1), torch.tensor([2, 1, 0]), tuple("abc")
    )
    view = ClientData.of(data, split_of(2, 1, 0)).train
    first, second = view.in_order(2)
    assert (first.positions.tolist(), second.positions.tolist()) == ([0, 1], [2])
    assert (first.labels.tolist(), second.labels.tolist()) == ([0, 1], [2])
    torch.testing.assert_close(first.inputs.flatten(), torch.tensor([1.0, -0.6]))
    torch.testing.assert_close(second.inputs.flatten(), torch.tensor([-1.0]))


def test_an_epoch_has_every_sample_once_in_an_order_that_the_generator_decides() -> None:
    numbers = torch.randperm(100, generator=torch.Generator().manual_seed(1))
    pixels = numbers.to(torch.uint8).reshape(100, 1, 1, 1)
    view = View(Dataset("some", pixels, numbers, tuple(map(str, range(100)))), torch.arange(20, 57))

    def epoch(seed: int) -> list[Samples]:
        return list(view.shuffled(8, torch.Generator().manual_seed(seed)))

    drawn = torch.cat([batch.positions for batch in epoch(3)])
    assert sorted(drawn.tolist()) == list(range(37))
    assert drawn.tolist() != list(range(37))
    assert [len(batch.labels) for batch in epoch(3)] == [8, 8, 8, 8, 5]
    assert torch.equal(drawn, torch.cat([batch.positions for batch in epoch(3)]))
    assert not torch.equal(drawn, torch.cat([batch.positions for batch in epoch(4)]))
    for positions, inputs, labels in epoch(3):
        assert torch.equal(labels, numbers[20 + positions])
        torch.testing.assert_close(inputs.flatten(), labels / 127.5 - 1)
