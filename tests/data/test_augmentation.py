"""Crops and flips: what they do, and that they depend on client, round, epoch and sample alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import bits
from tests.conftest import tiny
from xfed import InputError, resume, run
from xfed.data.augmentation import Augmentation, Drawn
from xfed.data.dataset import datasets
from xfed.data.views import View
from xfed.training import trainer as training


def test_a_crop_and_a_flip_by_hand() -> None:
    image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    here = torch.tensor([0])
    # Padded by 1 all around: moving by (1, 1) is the image itself, (0, 2) shows what is up and to the right of it.
    assert torch.equal(Drawn((1, 1), torch.tensor([[1, 1]]), None).apply(image, here), image)
    assert Drawn((1, 1), torch.tensor([[0, 2]]), None).apply(image, here).tolist() == [[[[0, 0], [2, 0]]]]
    assert Drawn((1, 1), None, torch.tensor([True])).apply(image, here).tolist() == [[[[2, 1], [4, 3]]]]
    assert Drawn((1, 1), torch.tensor([[2, 1]]), torch.tensor([True])).apply(image, here).tolist() == [
        [[[4, 3], [0, 0]]]
    ]


def test_what_happens_to_a_sample_does_not_depend_on_its_batch() -> None:
    digits = datasets.get("digits")().load()
    view = View(digits, torch.arange(40))
    drawn = Augmentation(("crop", "flip")).draw(40, digits.input_shape, torch.Generator().manual_seed(3))
    seen = {}
    for size in (7, 40):
        batches = list(view.batches(torch.randperm(40, generator=torch.Generator().manual_seed(size)), size, drawn))
        order = torch.cat([batch.positions for batch in batches]).argsort()
        seen[size] = torch.cat([batch.inputs for batch in batches])[order]
    assert torch.equal(seen[7], seen[40])
    plain = torch.cat([batch.inputs for batch in view.in_order(40)])
    changed = (seen[7] != plain).flatten(1).any(1)
    assert 20 < changed.sum() < 40
    assert drawn.flips is not None
    assert 8 < drawn.flips.sum() < 32


def test_same_bits_on_every_engine_and_after_a_resumption(tmp_path: Path) -> None:
    changes = {"augment": "crop,flip", "rounds": 3, "epochs": 2}
    serial = run(tiny(out=tmp_path / "serial", **changes), progress=False)
    others = run(tiny(out=tmp_path / "processes", engine="processes", workers=2, **changes), progress=False)
    assert bits.differences(serial, others) == []
    (others.path / "finished.json").unlink()
    assert bits.differences(serial, resume(others.path, progress=False, from_round=2, engine="serial")) == []
    plain = run(tiny(out=tmp_path / "plain", rounds=3, epochs=2), progress=False)
    assert "server/model.parameters" in bits.differences(serial, plain)


def test_nothing_computed_on_plain_images_stands_in_for_changed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xfed.algorithms import xfed as method

    def never(*_: object) -> None:
        raise AssertionError("computed beforehand, on images that training does not see")

    monkeypatch.setattr(method, "CachedTeacher", never)
    monkeypatch.setattr(training, "FrozenFeatures", never)
    run(tiny(out=tmp_path / "xfed", rounds=2, augment="flip"), progress=False)
    run(tiny(out=tmp_path / "fedrep", method="fedrep", rounds=1, epochs=2, augment="crop"), progress=False)


def test_text_is_refused() -> None:
    from dataclasses import replace

    from xfed.federation.host import build_trainer

    card = replace(datasets.get("digits")().load().card, kind="text", input_shape=(8,), tokens=9)
    experiment = tiny(model="transformer", augment="crop")
    with pytest.raises(InputError, match="augment changes images, but data set 'digits' is text"):
        build_trainer(experiment, card, "cpu")
    with pytest.raises(InputError, match="augment is"):
        tiny(augment="crop,rotate")
