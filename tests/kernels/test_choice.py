"""Which kernels a run gets, that it keeps them, and what they do to its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.bits import differences
from tests.kernels.compiled import needs_compiler
from tests.models.builders import batch, build, small
from xfed import Run, resume
from xfed.errors import InputError
from xfed.kernels import choice
from xfed.kernels.choice import STANDARD, Kernels, Measurements, choose
from xfed.kernels.library import identity, library

CPU = torch.device("cpu")
WIDE = {"width": 32}


@pytest.fixture(autouse=True)
def nothing_measured_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "cache_root", lambda: tmp_path / "cache")


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    library.cache_clear()
    yield
    library.cache_clear()


def timed(monkeypatch: pytest.MonkeyPatch, standard: float, other: float) -> list[str]:
    """Let every measurement come out so; give the list of what was measured."""
    measured: list[str] = []

    def race(*works: object) -> list[float]:
        measured.append(str(works[0]))
        return [standard, other]

    monkeypatch.setattr(choice, "_race", race)
    return measured


@needs_compiler
def test_fast_takes_every_stage_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 1.0, 2.0)  # fast does not ask
    network = build("convnet", (3, 32, 32), 5, width=32)
    assert choose("fast", network, batch("convnet"), 8, CPU) == Kernels(identity(), (0, 1, 2))


@needs_compiler
@pytest.mark.parametrize(("ours", "stages"), [(0.5, (0, 1, 2)), (0.95, ())])
def test_auto_takes_what_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, ours: float, stages: tuple[int, ...]
) -> None:
    measured = timed(monkeypatch, 1.0, ours)
    network = build("convnet", (3, 32, 32), 5, width=32)
    for _ in range(2):  # what was measured once is known
        assert choose("auto", network, batch("convnet"), 8, CPU) == Kernels(identity() if stages else None, stages)
    assert len(measured) == 3


def test_weight_gradients_are_measured_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    network = small("resnet18")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    shapes: list[tuple[int, ...]] = []

    def race(*works: Callable[[], torch.Tensor]) -> list[float]:
        torch_way, product = (work() for work in works)
        assert torch.allclose(torch_way, product, rtol=1e-4, atol=1e-5 * float(torch_way.abs().max()))
        shapes.append(tuple(product.shape))
        return [1.0, 0.5 if len(product) == 32 else 2.0]

    monkeypatch.setattr(choice, "_race", race)
    found = Measurements.of_this_machine().faster_products(network, batch("resnet18"))
    # The last of four stages has 8 · 4 = 32 channels: two 3 × 3 convolutions and the shortcut.
    assert found == ["stages.3.0.first.0", "stages.3.0.shortcut.0", "stages.3.0.second.0"]
    assert shapes[-3:] == [(32, 16, 3, 3), (32, 16, 1, 1), (32, 32, 3, 3)]
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_a_race_times_in_turns() -> None:
    order: list[str] = []
    times = choice._race(lambda: order.append("a"), lambda: order.append("b"))
    assert order == ["a", "b"] * (1 + choice.REPETITIONS)
    assert all(seconds > 0 for seconds in times)


@pytest.mark.usefixtures("without_compiler")
def test_without_a_compiler_fast_refuses_and_auto_runs_as_ever(train: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match=r"kernels is 'fast', but no C\+\+ compiler .* allowed here: standard, auto"):
        train("refused", kernels="fast")
    auto = train("auto", kernels="auto")
    assert auto.environment()["kernels"]["set"] == "standard"
    assert differences(train("standard"), auto) == []


def test_other_devices_have_no_such_kernels() -> None:
    network, gpu = small("convnet"), torch.device("meta")
    assert choose("auto", network, batch("convnet"), 4, gpu) == STANDARD
    with pytest.raises(InputError, match="kernels is 'fast' and device 'meta': these kernels are for the CPU"):
        choose("fast", network, batch("convnet"), 4, gpu)


def test_a_set_survives_its_note() -> None:
    kernels = Kernels("abc", (0, 2), ("stages.3.0.first.0",))
    assert Kernels.of_note(json.loads(json.dumps(kernels.note()))) == kernels
    assert kernels.sentence() == (
        "stages 1, 3 compiled (abc); weight gradients as matrix products in stages.3.0.first.0"
    )
    assert (STANDARD.note()["set"], kernels.note()["set"]) == ("standard", "fast")
    assert STANDARD.sentence() == "torch's own"


@needs_compiler
def test_curves_on_digits_are_equal_up_to_rounding_and_bits_are_not(train: Callable[..., Run]) -> None:
    settings = {"convnet": WIDE, "rounds": 6, "method": "fedavg"}
    standard, fast = train("standard", **settings), train("fast", kernels="fast", **settings)
    losses = [np.array([record.loss for record in run.records()]) for run in (standard, fast)]
    assert np.allclose(*losses, rtol=1e-4)
    assert [record.macs for record in standard.records()] == [record.macs for record in fast.records()]
    assert Kernels.of_note(fast.environment()["kernels"]) == Kernels(identity(), (0, 1, 2))
    assert "server/model.parameters" in differences(standard, fast)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("method", ["xfed", "scalefl", "depthfl", "fedrep"])
def test_workers_do_not_change_a_bit(train: Callable[..., Run], method: str) -> None:
    settings = {"convnet": WIDE, "kernels": "fast", "method": method}
    serial = train("serial", **settings)
    for workers in (1, 2):
        parallel = train(f"workers-{workers}", **settings, engine="processes", workers=workers)
        assert differences(serial, parallel) == []


@needs_compiler
def test_resume_keeps_the_set_and_refuses_another(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train("whole", convnet=WIDE, kernels="fast")
    other = tmp_path / "run"
    train("run", convnet=WIDE, kernels="fast")
    (other / "finished.json").unlink()
    assert differences(whole, resume(other, progress=False, from_round=3)) == []

    (other / "finished.json").unlink()
    here = library()
    monkeypatch.setattr(choice, "library", lambda: replace(here, digest="0123456789abcdef"))
    with pytest.raises(
        InputError, match=f"started with compiled kernels {here.digest}; here they are 0123456789abcdef"
    ):
        resume(other, progress=False)
    with pytest.raises(InputError, match="setting to resume with 'kernels'"):
        resume(other, progress=False, kernels="standard")


@needs_compiler
def test_the_fingerprint_knows_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.conftest import tiny

    prints = {kernels: tiny(kernels=kernels).fingerprint("data") for kernels in ("standard", "fast", "auto")}
    assert len(set(prints.values())) == 3
    monkeypatch.setattr("xfed.experiment.experiment.identity", lambda: "another")
    changed = {kernels: tiny(kernels=kernels).fingerprint("data") for kernels in prints}
    assert [changed[kernels] == prints[kernels] for kernels in prints] == [True, False, False]
