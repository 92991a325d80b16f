"""The case study's inputs and ratios, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xfed.data.dataset import Dataset, datasets
from xfed.inference.case_study import Measured, Setup, disturbed
from xfed.report.case_study import lines, markdown


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.get("digits")().load()


SAMPLES = np.array([5, 3, 8])


def test_clean_inputs_are_what_the_network_was_evaluated_on(digits: Dataset) -> None:
    found = disturbed(digits, SAMPLES, "clean", 0.1, client=0)
    assert torch.equal(torch.cat(found), digits.normalise(digits.inputs[SAMPLES]))
    assert {each.shape for each in found} == {(1, *digits.input_shape)}


def test_noise_on_normalised_inputs(digits: Dataset) -> None:
    samples = np.arange(400)
    noise = torch.cat(disturbed(digits, samples, "noise on inputs", 0.1, 0)) - digits.normalise(digits.inputs[samples])
    assert noise.std() == pytest.approx(0.1, rel=0.02)
    assert noise.mean() == pytest.approx(0.0, abs=0.003)


def test_noise_on_pixels_stays_in_the_range_of_pixels(digits: Dataset) -> None:
    samples = np.arange(400)
    clean = digits.inputs[samples] / digits.scale
    pixels = torch.cat(disturbed(digits, samples, "noise on pixels", 0.1, 0)) * digits.std + digits.mean
    assert pixels.min() == pytest.approx(0.0, abs=1e-6)
    assert pixels.max() == pytest.approx(1.0, abs=1e-6)
    inside = (clean > 0.4) & (clean < 0.6)
    assert (pixels - clean)[inside].std() == pytest.approx(0.1, rel=0.05)


def test_noise_is_the_same_for_every_model_and_another_for_every_client(digits: Dataset) -> None:
    one, again, other = (torch.cat(disturbed(digits, SAMPLES, "noise on inputs", 0.1, c)) for c in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_text_is_cut_to_its_length() -> None:
    rows = torch.tensor([[1, 5, 0, 0], [1, 5, 6, 0]])
    text = Dataset("words", rows, torch.tensor([0, 1]), ("a", "b"), kind="text")
    found = disturbed(text, np.array([1, 0]), "clean", 0.1, 0)
    assert [each.tolist() for each in found] == [[[1, 5, 6]], [[1, 5]]]


def test_ratios_by_hand() -> None:
    measured = [
        Measured("xfed", True, "clean", 0, 0.8, 1.0, (0.5, 0.5)),
        Measured("fedavg", False, "clean", 0, 0.6, 3.0, (1.0,)),
        Measured("xfed", True, "clean", 1, 0.6, 3.0, (1.0, 0.0)),
        Measured("fedavg", False, "clean", 1, 0.4, 5.0, (1.0,)),
    ]
    early, static = lines(measured)
    assert (early.accuracy, early.latency, early.shares) == (pytest.approx(0.7), 2.0, (0.75, 0.25))
    assert (static.accuracy, static.latency, static.ratio) == (pytest.approx(0.5), 4.0, 2.0)
    assert static.accuracy_std == pytest.approx(0.1)
    assert "2.00 ×" in markdown(measured, Setup(clients=(0, 1)))
