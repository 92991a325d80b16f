"""One description of a run: sections, flat names, roles, and what identifies it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from xfed import Dataset, Experiment, InputError, dataset, method, run
from xfed.algorithms.fedavg import FedAvg
from xfed.components import BaseSettings
from xfed.data.dataset import datasets
from xfed.experiment.experiment import ROLES, SECTION_OF, SECTIONS


def test_flat_dotted_and_sections_say_the_same() -> None:
    flat = Experiment(clients=7, lr=0.3, engine="serial", xfed={"mu": 0.7}, convnet={"width": 4})
    dotted = Experiment.from_mapping({"clients": 7, "lr": 0.3, "engine": "serial", "xfed.mu": 0.7, "convnet.width": 4})
    sections = Experiment(
        dealing={"clients": 7},
        training={"lr": 0.3},
        place={"engine": "serial"},
        settings={"method": {"mu": 0.7}, "model": {"width": 4}},
    )
    assert flat == dotted == sections
    assert Experiment.from_mapping(yaml.safe_load(flat.to_yaml())) == flat


def test_every_setting_stands_in_one_section_with_a_description() -> None:
    names = [name for model in SECTIONS.values() for name in model.model_fields]
    assert len(names) == len(set(names)) == len(SECTION_OF)
    assert not set(names) & {*SECTIONS, *ROLES} - {"engine"}
    for model in SECTIONS.values():
        assert all(field.description for field in model.model_fields.values())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rounds": 0}, r"rounds is 0: input should be greater than 0"),
        ({"method": "nope"}, r"unknown method 'nope'"),
        ({"seed": -1}, r"seed is -1"),
        ({"roundz": 3}, r"unknown setting 'roundz' \(did you mean rounds\?\)"),
        ({"training": {"clients": 3}}, r"unknown setting 'training.clients'"),
        ({"training": 3}, r"training is 3; allowed: a section of settings"),
        ({"settings": {"xfed": 3}}, r"settings of xfed are 3; allowed: a section"),
        ({"fedper": {"mu": 1}}, r"fedper\.mu is a setting of the method 'fedper', and the method is 'xfed'"),
        ({"xfed": {"nu": 1}}, r"unknown setting 'xfed.nu'"),
        ({"method": 5}, r"method is 5; allowed: a name"),
        ({"plugin": "missing.py"}, r"plug-in file 'missing.py' does not exist"),
    ],
)
def test_whatever_is_wrong_is_one_kind_of_error(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment(**values)


def test_components_of_one_name_cannot_overwrite_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twin(FedAvg):
        """A method that shares its name with a data set."""

        class Settings(BaseSettings):
            strength: int = 1

    digits = datasets.get("digits")().load()
    for registry in (datasets, ROLES["method"]):
        list(registry)  # discovered first, or what this test discovers would be forgotten for all after it
        monkeypatch.setattr(registry, "_found", dict(registry._found))
    method("twin")(Twin)

    @dataset("twin")
    def twin() -> Dataset:
        """The digits under another name."""
        return digits

    made = Experiment(method="twin", dataset="twin", **{"method.strength": 3})
    assert made.settings["method"] == {"strength": 3}
    with pytest.raises(InputError, match=r"'twin' is the method and the dataset; write method.KEY or dataset.KEY"):
        Experiment(method="twin", dataset="twin", twin={"strength": 3})


def test_an_engine_is_looked_up_when_a_run_starts(tmp_path: Path) -> None:
    for values, sentence in (
        ({"engine": "cloud"}, "unknown engine 'cloud'; allowed: .*processes"),
        ({"engine": "processes", "processes": {"timeout": -1}}, r"processes\.timeout is -1"),
    ):
        with pytest.raises(InputError, match=sentence):
            run(Experiment(out=tmp_path / "run", **values))
        assert not (tmp_path / "run").exists()


def test_a_changed_experiment_differs_in_nothing_else() -> None:
    one = Experiment(clients=7, processes={"timeout": 5.0})
    other = one.changed(engine="serial", workers=3)
    assert (other.place.engine, other.place.workers) == ("serial", 3)
    assert "engine" not in other.settings
    assert one.changed(workers=3).settings == one.settings
    assert other.fingerprint("data") == one.fingerprint("data"), "where a run happens decides no number"
    assert one.changed(lr=0.3).fingerprint("data") != one.fingerprint("data")
    assert one.fingerprint("other data") != one.fingerprint("data")


def test_what_a_data_set_recommends_gives_way_to_what_is_given(tmp_path: Path) -> None:
    assert Experiment(dataset="cifar10").dealing.clients == 100
    assert Experiment(dataset="cifar10", clients=5).dealing.clients == 5
    assert Experiment().settings["model"]["width"] == 32, "digits recommend a narrow network"
    assert Experiment(convnet={"width": 8}).settings["model"]["width"] == 8
    assert Experiment(dataset="cifar10", partition=tmp_path / "p.json").dealing.clients == 20, "a file brings its own"


def test_the_recipe_holds_no_path_and_no_data() -> None:
    recipe = Experiment(plugin=(), out="somewhere", data_dir="elsewhere").recipe()
    assert set(recipe) == {"method", "model", "exits", "answers", "seed", "training", "settings"}
    assert set(recipe["settings"]) == {"method", "model"}
    assert "somewhere" not in str(recipe)
