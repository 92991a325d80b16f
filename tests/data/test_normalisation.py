"""Images normalised channel by channel: in training, and with the same numbers on a device."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import tiny
from xfed import InputError, run
from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed_runtime.inputs import ImageInputs


def colourful() -> Dataset:
    pixels = np.random.default_rng(4).integers(0, 256, (50, 3, 4, 5), dtype=np.uint8)
    pixels[:, 1] //= 4
    pixels[:, 2] = 7  # a channel without any difference
    return Dataset("colourful", torch.from_numpy(pixels), torch.arange(50) % 2, ("a", "b"))


def opened() -> Dataset:
    return colourful().in_files("noted", opened)


def test_each_channel_by_its_own_mean_and_std() -> None:
    dataset = colourful().by_channel()
    pixels = dataset.inputs.numpy() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    assert dataset.mean == pytest.approx(tuple(mean))
    assert dataset.std == pytest.approx((std[0], std[1], 1.0))
    wanted = (pixels - mean[:, None, None]) / np.array([std[0], std[1], 1.0])[:, None, None]
    np.testing.assert_allclose(dataset.normalise(dataset.inputs), wanted, atol=1e-5)
    assert dataset.checksum() == colourful().checksum()


def test_the_same_on_a_device_and_in_another_process() -> None:
    dataset = colourful().by_channel()
    inputs = ImageInputs((3, 4, 5), 255.0, dataset.mean, dataset.std)
    np.testing.assert_array_equal(inputs.prepare(dataset.inputs.numpy()), dataset.normalise(dataset.inputs).numpy())
    assert DataCard.from_json(dataset.card.to_json()).mean == dataset.mean
    assert Dataset.from_bytes(dataset.to_bytes(), dataset.checksum()).std == dataset.std
    there = pickle.loads(pickle.dumps(opened().by_channel()))
    assert (there.mean, there.digest) == (dataset.mean, "noted")


def test_as_a_setting(tmp_path: Path) -> None:
    made = run(tiny(out=tmp_path / "r", rounds=1, normalise="channels"), progress=False)
    (mean,), (std,) = made.card.mean, made.card.std
    pixels = made.dataset().inputs.numpy() / 16
    assert (mean, std) == pytest.approx((pixels.mean(), pixels.std()))
    assert tiny(normalise="channels").fingerprint("d") != tiny().fingerprint("d")
    text = Dataset("words", torch.ones(4, 3, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), ("a",), kind="text")
    with pytest.raises(InputError, match="normalise is 'channels', but data set 'words' is text"):
        text.by_channel()
