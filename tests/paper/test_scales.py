"""Scales keep of the protocol what they say."""

from __future__ import annotations

import pytest

from xfed import Experiment, InputError
from xfed.paper.catalogue import ARTEFACTS
from xfed.paper.scales import SETTINGS, TASKS, Choice, Wanted, in_words


@pytest.mark.parametrize(("dataset", "alpha"), SETTINGS)
def test_full_is_the_papers_protocol(dataset: str, alpha: float) -> None:
    e = Experiment.from_mapping(Wanted(dataset, alpha, "xfed").values("full"))
    t = e.training
    assert (e.dealing.clients, t.sample, t.batch_size, t.lr, t.lr_decay) == (100, 0.1, 64, 0.1, 0.99)
    assert (t.rounds, t.epochs) == ((100, 1) if dataset == "agnews" else (300, 5))
    assert (e.dealing.alpha, e.dealing.calibration, e.dealing.way) == (alpha, 0.0, "dirichlet")
    assert e.model == {"cifar10": "convnet", "agnews": "transformer"}.get(dataset, "resnet18")
    widths = {"cifar10": 128, "agnews": 192, "cifar100": 64, "tiny-imagenet": 64}
    assert e.settings["model"]["width"] == widths[dataset]


@pytest.mark.parametrize("dataset", TASKS)
def test_small_keeps_all_but_width_and_rounds(dataset: str) -> None:
    full, small = (Experiment.from_mapping(Wanted(dataset, 0.3, "xfed").values(scale)) for scale in ("full", "small"))
    assert small.dealing == full.dealing
    assert (small.training.sample, small.training.epochs, small.training.batch_size) == (
        full.training.sample,
        full.training.epochs,
        full.training.batch_size,
    )
    assert small.training.rounds < full.training.rounds
    assert small.settings["model"]["width"] < full.settings["model"]["width"]
    if dataset == "cifar10":
        assert small.training.lr_decay == 0.99
    else:
        rate_at_the_end = small.training.lr_decay**small.training.rounds
        assert rate_at_the_end == pytest.approx(0.99**full.training.rounds)


def test_tiny_says_what_stands_in() -> None:
    assert Experiment.from_mapping(Wanted("agnews", 0.3, "xfed").values("tiny")).dataset == "digits"
    assert "digits stand in for CIFAR-10, AG News" in in_words("tiny", ["cifar10", "agnews", "cifar10"], {})
    assert in_words("small", ["cifar10"], {}).endswith("(CIFAR-10 100 rounds).")


@pytest.mark.parametrize("name", ARTEFACTS)
@pytest.mark.parametrize("scale", ["full", "small", "tiny"])
def test_every_run_can_be_described(name: str, scale: str) -> None:
    choice = Choice(scale)  # type: ignore[arg-type]
    for wanted, (experiment,) in ARTEFACTS[name].experiments(choice).items():
        assert experiment.method == wanted.method
        assert experiment.dataset == ("digits" if scale == "tiny" else wanted.dataset)


def test_table_1_has_14_methods_and_xfed_plus_in_7_settings() -> None:
    assert len(ARTEFACTS["averaged-accuracy"].experiments(Choice("full"))) == 105
    chosen = Choice("full", ["agnews"], None, ["xfed", "fedper"], (1, 2, 3))
    assert [len(group) for group in ARTEFACTS["averaged-accuracy"].experiments(chosen).values()] == [3, 3]


def test_all_runs_may_change_what_the_scale_sets() -> None:
    """The network's own settings go with it; what tells rows apart stays."""
    changes = {"model": "convnet", "convnet.width": 24, "rounds": 7, "xfed.mu": 0.5}
    chosen = Choice("small", ["cifar100"], None, None, (1,), {}, changes)
    found = {w.variant: e for w, (e,) in ARTEFACTS["hyperparameters"].experiments(chosen).items()}
    assert {(e.model, e.settings["model"]["width"], e.training.rounds) for e in found.values()} == {("convnet", 24, 7)}
    assert (found["μ = 0.3"].settings["method"]["mu"], found["λ = 0.4"].settings["method"]["mu"]) == (0.3, 0.5)
    said = in_words("small", ["cifar100"], changes)
    assert said.endswith("Otherwise than there: model = convnet, convnet.width = 24, rounds = 7, xfed.mu = 0.5.")
    with pytest.raises(InputError, match="--set alpha: a table or figure chooses that"):
        Choice("small", changes={"alpha": 0.1})


def test_the_rate_falls_as_far_in_other_rounds() -> None:
    wanted = Wanted("tiny-imagenet", 0.3, "xfed")
    values = wanted.values("small", {"rounds": 60})
    assert (values["rounds"], values["eval_every"]) == (60, 6)
    assert values["lr_decay"] ** 60 == pytest.approx(0.99**300)
    assert wanted.values("small", {"rounds": 60, "lr_decay": 0.9})["lr_decay"] == 0.9
    assert wanted.values("small", {"rounds": "many"})["rounds"] == "many"  # refused where settings are checked


def test_a_choice_without_runs() -> None:
    with pytest.raises(InputError, match="no run has this data set and this method"):
        Choice("tiny", ["cifar10"], None, ["fedper"]).of(
            [Wanted("cifar10", 0.3, "xfed"), Wanted("agnews", 0.3, "fedper")]
        )
