"""Data sets: scaling, checksums, sharing, and functions that become one."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from xfed import Experiment
from xfed.data.dataset import Dataset, DatasetRegistry, DatasetSource, datasets
from xfed.errors import InputError
from xfed.experiment.experiment import SECTION_OF

IMAGES = torch.tensor([0, 255, 51, 102], dtype=torch.uint8).reshape(2, 1, 1, 2)
LABELS = torch.tensor([0, 1])


def some(**changes: Any) -> Dataset:
    """Two images of two pixels."""
    return Dataset(**{"name": "some", "inputs": IMAGES, "labels": LABELS, "classes": ("a", "b"), **changes})


def text(**changes: Any) -> Dataset:
    """Two rows of three token ids."""
    return some(inputs=torch.tensor([[1, 3, 0], [1, 4, 5]], dtype=torch.int32), kind="text", **changes)


def test_images_are_scaled_to_minus_one_and_one() -> None:
    batch = some().normalise(IMAGES)
    assert batch.dtype == torch.float32
    torch.testing.assert_close(batch.flatten(), torch.tensor([-1.0, 1.0, -0.6, -0.2]))


def test_floating_point_inputs_are_not_changed_in_place() -> None:
    raw = torch.tensor([[[[2.0]]], [[[4.0]]]])
    data = some(inputs=raw, scale=2.0, mean=1.0, std=0.5)
    assert data.normalise(data.inputs[:1]).item() == 0.0
    assert raw.flatten().tolist() == [2.0, 4.0]


def test_text_becomes_ids() -> None:
    data = text()
    assert data.input_shape == (3,)
    batch = data.normalise(data.inputs)
    assert batch.dtype == torch.int64
    assert batch.tolist() == [[1, 3, 0], [1, 4, 5]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": torch.tensor([0, 2])}, "has labels from 0 to 2; allowed with 2 classes: 0 to 1"),
        ({"labels": torch.tensor([-1, 1])}, "has labels from -1 to 1"),
        ({"labels": torch.tensor([0])}, "has 2 inputs but 1 labels"),
        ({"inputs": IMAGES[:0], "labels": LABELS[:0]}, "is empty"),
        ({"groups": torch.tensor([1])}, "has 2 samples but names the client of 1"),
        ({"kind": "text"}, r"is text, but its inputs are torch.uint8 of shape \(2, 1, 1, 2\)"),
    ],
)
def test_contradictions_are_told(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"data set 'some' {sentence}"):
        some(**changes)


def test_checksum_by_hand() -> None:
    content = b"torch.uint8(2, 1, 1, 2)('a', 'b')" + bytes([0, 255, 51, 102]) + bytes(8) + b"\1" + bytes(7)
    assert some().checksum() == hashlib.sha256(content).hexdigest()


def test_checksum_sees_words_and_natural_clients() -> None:
    variants = [text(), text(vocabulary=("a", "b")), text(vocabulary=("a", "c")), text(groups=LABELS)]
    assert len({data.checksum() for data in variants}) == 4


def test_a_data_set_in_memory_is_shared_and_sent_as_it_is() -> None:
    shared = some(groups=LABELS).shared()
    assert shared.inputs.is_shared()
    assert shared.labels.is_shared()
    back = pickle.loads(pickle.dumps(some(groups=LABELS)))
    assert torch.equal(back.inputs, IMAGES)
    assert back.groups.tolist() == [0, 1]


def test_to_the_same_device_is_nothing() -> None:
    data = some()
    assert data.to(torch.device("cpu")) is data


class TestFunctions:
    """Plain functions as data sets."""

    def registry(self) -> DatasetRegistry:
        return DatasetRegistry("dataset", DatasetSource, "xfed.data")

    def test_a_function_is_a_source(self) -> None:
        registry = self.registry()

        @registry.register("mine")
        def mine() -> Dataset:
            """Two images of mine."""
            return some()

        assert mine().name == "some", "still a function"
        source = registry.get("mine")
        assert (source.name, source.summary(), source.__module__) == ("mine", "Two images of mine.", __name__)
        assert torch.equal(source().load().inputs, IMAGES)

    def test_a_class_is_a_source_as_before(self) -> None:
        registry = self.registry()

        @registry.register("mine")
        class Mine(DatasetSource):
            """Mine."""

        assert registry.get("mine") is Mine

    def test_by_entry_point(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Point:
            name = "installed"

            def load(self) -> Any:
                return some

        def points(group: str) -> Sequence[Point]:
            return [Point()] if group == "xfed.datasets" else []

        monkeypatch.setattr("xfed.components.entry_points", points)
        assert self.registry().get("installed")().load().name == "some"

    def test_what_is_no_data_set_is_told(self) -> None:
        registry = self.registry()
        registry.register("wrong")(lambda: [1, 2])  # type: ignore[arg-type, return-value]
        with pytest.raises(InputError, match="the function of data set 'wrong' returned list; allowed: a Dataset"):
            registry.get("wrong")().load()

    def test_a_function_that_needs_something_is_told(self) -> None:
        with pytest.raises(InputError, match="the function of data set 'mine' needs size; allowed: a function without"):
            self.registry().register("mine")(lambda size: some())  # type: ignore[arg-type]
        with pytest.raises(InputError, match="data set 'mine' is 3; allowed: a DatasetSource class or a function"):
            self.registry().register("mine")(3)  # type: ignore[type-var]


def test_every_recommended_setting_is_one_of_the_experiment() -> None:
    for source in datasets:
        unknown = set(source.recommended) - {*Experiment.model_fields, *SECTION_OF, "convnet"}
        assert not unknown, source.name


def test_published_sets_bring_the_papers_settings() -> None:
    paper = {"clients": 100, "sample": 0.1}
    assert {name: dict(datasets.get(name).recommended) for name in ("cifar10", "cifar100", "tiny-imagenet")} == {
        "cifar10": {**paper, "rounds": 300, "model": "convnet"},
        "cifar100": {**paper, "rounds": 300, "model": "resnet18"},
        "tiny-imagenet": {**paper, "rounds": 300, "model": "resnet18"},
    }
    assert datasets.get("agnews").recommended == {**paper, "rounds": 100, "epochs": 1, "model": "transformer"}
    assert datasets.get("fashion-mnist").recommended == {**paper, "model": "convnet"}


def test_replace_forgets_what_may_no_longer_hold() -> None:
    data = some().in_files("digest", some)
    assert (data.checksum(), data.shared() is data) == ("digest", True)
    assert replace(data).digest is None
