"""Every method: it runs, its bits hold, and methods coincide in their limits, with nothing passing on the side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import xfed.algorithms.depthfl as depthfl
import xfed.algorithms.fedpac as fedpac
import xfed.training.regularisers as regularisers
from tests.algorithms.conftest import ByteEngine
from tests.bits import contents, differences, final_models, spy
from tests.conftest import tiny
from xfed import InputError, Run, resume
from xfed.algorithms.fedavg import FedAvg
from xfed.algorithms.fedrod import PERSONAL
from xfed.models.layout import ModelState
from xfed.models.parts import Parts
from xfed.protocol.algorithm import methods

ALL = sorted(component.name for component in methods if component.__module__.startswith("xfed.algorithms"))


def equal_models(one: Run, other: Run) -> bool:
    a, b = final_models(one), final_models(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_there_are_fourteen_the_successor_and_the_naive_way() -> None:
    assert ALL == [
        "depthfl", "ditto", "fedamp", "fedavg", "fedbabu", "fedpac", "fedper", "fedprox", "fedrep", "fedrod", "local",
        "pfedgraph", "posthoc", "scalefl", "xfed", "xfed-plus",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_bits_hold_over_workers_and_resume(tmp_path: Path, train: Callable[..., Run], method: str) -> None:
    reference = train("serial", method=method)
    spread = train("spread", method=method, engine="processes", workers=2)
    assert differences(reference, spread) == []
    (spread.path / "finished.json").unlink()
    resumed = resume(spread.path, progress=False, from_round=3, engine="serial")
    assert differences(reference, resumed) == []


@pytest.mark.parametrize("method", [name for name in ALL if name not in ("scalefl", "depthfl")])
def test_single_exit_form(train: Callable[..., Run], method: str) -> None:
    assert len(train(method=method, exits="last", rounds=2).summary().last.exits) == 1


@pytest.mark.parametrize("method", ["scalefl", "depthfl"])
def test_early_exit_methods_refuse_a_single_exit(train: Callable[..., Run], tmp_path: Path, method: str) -> None:
    with pytest.raises(InputError, match=rf"'{method}' trains early-exit networks of 2 to 4 exits; this one has 1"):
        train(method=method, exits="last")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [name for name in ALL if name not in ("scalefl", "depthfl", "xfed", "xfed-plus", "posthoc")]
)
def test_local_distillation_changes_training(train: Callable[..., Run], method: str) -> None:
    plain = train("plain", method=method, rounds=2)
    assert "rounds" in differences(plain, train("sum", method=method, rounds=2, local_kd="sum"))
    assert not equal_models(plain, train("mean", method=method, rounds=2, local_kd="mean"))


@pytest.mark.parametrize("method", ["scalefl", "depthfl", "xfed"])
def test_methods_with_their_own_distillation_refuse_another(method: str) -> None:
    with pytest.raises(InputError, match=f"method '{method}' distils by itself"):
        tiny(method=method, local_kd="sum")


def test_fedprox_without_pull_is_fedavg(
    engines: list[ByteEngine],
    train: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pulls = spy(monkeypatch, regularisers, "_pairs")
    assert equal_models(train("a", method="fedprox", fedprox={"mu": 0.0}), train("b", method="fedavg"))
    assert pulls, "the pull was computed"
    assert not equal_models(train("c", method="fedprox", fedprox={"mu": 1.0}), train("d", method="fedavg"))


def test_ditto_without_pull_is_local(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    assert equal_models(train("a", method="ditto", ditto={"lam": 0.0}), train("b", method="local"))
    assert not equal_models(train("c", method="ditto"), train("d", method="local"))


def test_dittos_global_model_is_fedavgs(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    ditto, fedavg = (contents(train(name, method=name))["server/model.parameters"] for name in ("ditto", "fedavg"))
    assert torch.equal(ditto, fedavg)


def test_fedpac_with_own_heads_and_no_alignment_is_fedrep(
    engines: list[ByteEngine],
    train: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One-hot weights: every client's statistics are pushed far apart before the real program is solved."""
    solved = fedpac.combine

    def far_apart(means: Any, variances: Any) -> Any:
        weights, failures = solved(means + 1e6 * torch.eye(*means.shape).numpy(), 0 * variances)
        assert (weights == torch.eye(len(means)).numpy()).all()
        return weights, failures

    monkeypatch.setattr(fedpac, "combine", far_apart)
    alike = {"lam": 0.0, "head_epochs": 2, "head_rate": None}
    one = train("fedpac", method="fedpac", fedpac=alike)
    assert equal_models(one, train("fedrep", method="fedrep", fedrep={"head_epochs": 2}))


def test_depthfl_stripped_is_uniform_fedavg(
    engines: list[ByteEngine],
    train: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutual = spy(monkeypatch, depthfl, "divergence")
    bare = {"feddyn": False, "kd": 0.0, "optimiser": "common"}
    one = train("depthfl", method="depthfl", depthfl=bare)
    assert mutual, "mutual distillation ran"
    monkeypatch.setattr(FedAvg, "weighting", "uniform")
    assert equal_models(one, train("fedavg", method="fedavg"))


def test_fedrod_without_personal_heads_predicts_as_generic(
    engines: list[ByteEngine], train: Callable[..., Run]
) -> None:
    result = train("fedrod", method="fedrod", rounds=1)
    found, host = contents(result), engines[0].host
    generic = host.trainer.layout.views(ModelState(found["server/model.parameters"], host.initial.statistics))
    trained = set(found["client/versions"])
    assert len(trained) == 3, "half of six clients took part"
    for client in range(6):
        model = result.model(client).state_dict()
        moved = {name for name, tensor in generic.items() if not torch.equal(model[name], tensor)}
        exits = {name for name in generic if name.startswith("exits.")}
        assert moved == (exits if client in trained else set()), "personal heads are zero until they are trained"
    client = min(trained)
    name, personal = "exits.2.linear.bias", found[f"client/{client}/{PERSONAL}last_exit"]
    assert torch.equal(result.model(client).state_dict()[name], generic[name] + personal[-10:]), "the sum of both heads"


def test_fedbabu_never_touches_its_exits_until_the_end(engines: list[ByteEngine], train: Callable[..., Run]) -> None:
    result = train("fedbabu", method="fedbabu")
    host = engines[0].host
    layout = host.trainer.layout
    server = ModelState(contents(result)["server/model.parameters"], host.initial.statistics)
    for part in Parts.EXITS:
        assert torch.equal(layout.gather(server, part), layout.gather(host.initial, part))
    assert all(set(upload.tensors) == {"backbone"} for upload in engines[0].uploads)
    assert contents(result)["client/versions"] == {}, "nothing personal is kept"
    summary = result.summary()
    assert (summary.last5, summary.best) == (None, None)
    untuned = train("untuned", method="fedbabu", fedbabu={"tuning_epochs": 0})
    assert torch.equal(contents(result)["server/model.parameters"], contents(untuned)["server/model.parameters"])
    assert not equal_models(result, untuned), "the final evaluation is of tuned copies"
    head = train("head", method="fedbabu", fedbabu={"tuning_scope": "head"})
    backbone = [name for name in final_models(head) if ".stages." in name or "/stages." in name]
    assert all(torch.equal(final_models(head)[name], final_models(untuned)[name]) for name in backbone)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_learns_on_digits(train: Callable[..., Run], method: str) -> None:
    result = train(method=method, rounds=8, epochs=3, convnet={"width": 8}, sample=1.0)
    majority = result.environment()["majority_baseline"]["mean"]
    last = result.summary().last
    assert last.mean > majority + 0.2
    assert last.exits[-1] > majority + 0.4
