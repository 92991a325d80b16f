"""The real data, where XFED_DATA points at it: `XFED_DATA=folder pytest tests/data/test_real_bytes.py`."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from xfed.data.catalogue import check
from xfed.data.dataset import Dataset, datasets
from xfed.data.raw.source import PublishedSource
from xfed.data.sources.tiny_imagenet import TinyImageNet
from xfed_runtime.text import tokenize

REAL = os.environ.get("XFED_DATA", "")


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decode each set once for all tests here."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def real(root: Path, cache: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the real data again, which other tests must not see."""
    monkeypatch.setenv("XFED_DATA", REAL)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))


def load(name: str) -> Dataset:
    """Load a set, or skip the test where its raw files are not there."""
    source = datasets.get(name)()
    assert isinstance(source, PublishedSource)
    if not REAL or source.find() is None:
        pytest.skip(f"the real files of {name} are not under XFED_DATA")
    return source.load()


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100), ("fashion-mnist", 10)])
def test_content_is_the_published_one(name: str, classes: int) -> None:
    data = load(name)
    assert data.labels.bincount().tolist() == [len(data) // classes] * classes
    assert check(name).ok


def test_cifar10() -> None:
    data = load("cifar10")
    assert data.inputs.shape == (60_000, 3, 32, 32)
    assert data.classes[:4] == ("airplane", "automobile", "bird", "cat")
    assert data.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert data.labels[50_000:50_005].tolist() == [3, 8, 8, 0, 6], (
        "the first of the test part: cat, ship, ship, plane, frog"
    )
    assert data.inputs[0, :, 0, 0].tolist() == [59, 62, 63]
    assert data.labels[:50_000].bincount().tolist() == [5_000] * 10


def test_cifar100() -> None:
    data = load("cifar100")
    assert data.inputs.shape == (60_000, 3, 32, 32)
    assert (data.classes[0], data.classes[19], data.classes[99]) == ("apple", "cattle", "worm")
    assert data.labels[:5].tolist() == [19, 29, 0, 11, 1]
    assert data.inputs[0, :, 0, 0].tolist() == [255, 255, 255]
    assert data.labels[:50_000].bincount().tolist() == [500] * 100


def test_tiny_imagenet() -> None:
    data = load("tiny-imagenet")
    raw = TinyImageNet().find()
    assert raw is not None
    assert data.input_shape == (3, 64, 64)
    assert len(data.classes) == 200
    assert data.classes[:3] == ("goldfish", "European fire salamander", "bullfrog")
    counts = data.labels.bincount()
    assert counts.tolist() == [len(data) // 200] * 200, "validation labels are not all of one class"
    wnids = sorted(raw.get("wnids.txt").decode().split())
    lines = [line.split("\t") for line in raw.get("val/val_annotations.txt").decode().splitlines()]
    validation = data.labels[len(data) - len(lines) :]
    assert [wnids[label] for label in validation.tolist()] == [wnid for _, wnid, *_ in lines]
    with Image.open(io.BytesIO(raw.get(f"val/images/{lines[0][0]}"))) as image:
        expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(data.inputs[len(data) - len(lines)].numpy(), expected)


def test_agnews() -> None:
    data = load("agnews")
    assert data.vocabulary is not None
    assert data.vocabulary[:3] == ("<pad>", "<cls>", "<unk>")
    assert len(data.vocabulary) == 32_000
    assert data.input_shape == (200,)
    test = slice(len(data) - 7_600, None)
    assert data.labels[test].bincount().tolist() == [1_900] * 4
    assert data.labels[test][:3].tolist() == [2, 3, 3], "business, science, science"
    row = [data.vocabulary[token] for token in data.inputs[test][0].tolist() if token]
    text = (
        "Fears for T N pension after talks Unions representing workers at Turner   Newall say they are 'disappointed' "
        "after talks with stricken parent firm Federal Mogul."
    )
    assert row[0] == "<cls>"
    assert [word for word, token in zip(row[1:], tokenize(text), strict=True) if word not in (token, "<unk>")] == []
    assert row.count("<unk>") <= 3
    assert (data.inputs[:, 0] == 1).all()
    assert data.inputs.max() < 32_000
    assert (data.inputs == 2).float().sum() / (data.inputs > 2).sum() < 0.03, "few words are unknown"
    assert torch.equal(data.inputs != 0, (data.inputs != 0).cummin(1).values), "padding only at the end"
