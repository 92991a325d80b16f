from __future__ import annotations

import numpy as np
import torch

from xfed.data.dataset import Dataset
from xfed.data.partition import Split
from xfed.data.views import ClientData


def test_views_of_text() -> None:
    rows = torch.tensor([[1, 3], [1, 4], [1, 5], [1, 6]], dtype=torch.int32)
    data = Dataset("some", rows, torch.tensor([0, 1, 1, 0]), ("a", "b"), kind="text")
    views = ClientData.of(data, Split(train=np.array([3, 1]), calibration=np.array([], dtype=int), test=np.array([2])))
    inputs, labels = views.train.batch(torch.tensor([0, 1]))
    assert (inputs.dtype, inputs.tolist(), labels.tolist()) == (torch.int64, [[1, 6], [1, 4]], [0, 1])
    assert (len(views.calibration), views.test.labels().tolist()) == (0, [1])


def test_views_of_images() -> None:
    data = Dataset(
        "some", torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1), torch.zeros(3).long(), ("a",)
    )
    view = ClientData.of(data, Split(np.array([2, 1, 0]), np.array([], dtype=int), np.array([], dtype=int))).train
    torch.testing.assert_close(view.batch(torch.tensor([0, 1]))[0].flatten(), torch.tensor([1.0, -0.6]))
    assert [positions.tolist() for positions in view.in_order(2)] == [[0, 1], [2]]
