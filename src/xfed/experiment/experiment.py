"""One typed description of a run. Everything that decides its numbers is here; the rest says where it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from xfed.components import BaseSettings, Component, Registry, load_plugins, told, validate
from xfed.data.dataset import Dataset, DatasetSource, datasets, refuse_not_finite
from xfed.data.dealing.partitioning import Dealing
from xfed.data.raw.locations import looking_into
from xfed.errors import InputError, in_words, unknown
from xfed.experiment.recipe import Recipe
from xfed.experiment.sections import Evaluating, Place, Training
from xfed.kernels.library import identity
from xfed.models.network import models
from xfed.protocol.algorithm import methods
from xfed.protocol.engine import Engine, engines
from xfed.training.optimizers import ADAM_RATE
from xfed.yaml_text import parse

SECTIONS: dict[str, type[BaseSettings]] = {
    "dealing": Dealing,
    "training": Training,
    "evaluation": Evaluating,
    "place": Place,
}
SECTION_OF = {name: section for section, model in SECTIONS.items() for name in model.model_fields}
"""Settings are given by their own names, without the section's."""

ADDED = {"training": ("optimizer", "augment", "normalise"), "evaluation": ("metrics",)}
"""Settings that came later: at their defaults a run is what it was before there were any, and is found again."""

ROLES: dict[str, Registry[Any]] = {"method": methods, "dataset": datasets, "model": models, "engine": engines}
"""What an experiment puts together, each part with settings of its own."""


class Experiment(Recipe):
    """A run: method, data, network, protocol. Defaults train X-FED on the embedded data in seconds.

    Settings are given flat, as on the command line, or by section: `Experiment(clients=10, xfed={"mu": 0.7})`.
    """

    dataset: str = Field("digits", description="data set; `xfed datasets` lists them")
    dealing: Dealing = Field(default_factory=Dealing)
    evaluation: Evaluating = Field(default_factory=Evaluating)
    place: Place = Field(default_factory=Place)

    def __init__(self, **values: Any) -> None:
        arranged = arrange(values)
        try:
            super().__init__(**arranged)
        except ValidationError as error:
            raise told(error) from None
        wanted = self.training.min_replies
        if wanted is not None and wanted > self.cohort_size:
            raise InputError(f"min_replies is {wanted}, but a round has {self.cohort_size} clients; allowed: 1 to that")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Experiment:
        """Build from a settings file or command line, where dotted keys name components too.

        `{"clients": 10, "xfed": {"mu": 0.7}}` and `{"clients": 10, "xfed.mu": 0.7}` say the same.
        """
        return cls(**values)

    def changed(self, **values: Any) -> Experiment:
        """Give this experiment with some settings otherwise; of another engine, none of the present one's remain."""
        mine = self.model_dump()
        for name, value in values.items():
            if name in SECTION_OF:
                mine[SECTION_OF[name]][name] = value
            else:
                mine[name] = value
        if values.get("engine", self.place.engine) != self.place.engine:
            mine["settings"].pop("engine", None)
        return Experiment(**mine)

    def resolved(self) -> Experiment:
        """Give this experiment with what it leaves to the method said out."""
        return self.changed(refit=self.algorithm().refit, answers=self.answering())

    @property
    def cohort_size(self) -> int:
        """Clients per round."""
        clients = self.dealing.clients
        return clients if self.algorithm().everyone else max(1, round(self.training.sample * clients))

    def dataset_source(self) -> DatasetSource:
        """Build what loads the data."""
        component = datasets.get(self.dataset)
        return component(component.resolve(self.settings.get("dataset", {})))

    def load_data(self) -> Dataset:
        """Load the data, from the experiment's own data folder where it names one."""
        with looking_into(self.place.data_dir):
            loaded = self.dataset_source().load()
        if loaded.digest is None and loaded.inputs.is_floating_point():  # decoded copies were looked through before
            refuse_not_finite(loaded.inputs.cpu().numpy(), f"data set {self.dataset!r}")
        if len(loaded.classes) < 2:
            raise InputError(f"data set {self.dataset!r} has one class, which needs no answer; allowed: two or more")
        return loaded.by_channel() if self.training.normalise == "channels" else loaded

    def engine(self) -> Engine:
        """Build where clients run."""
        component = engines.get(self.place.engine)
        return component(component.resolve(self.settings.get("engine", {})))

    def to_yaml(self) -> str:
        """Write all settings out; `from_mapping` on the parsed text gives an equal experiment."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def fingerprint(self, data_checksum: str) -> str:
        """Identify what a run computes: the settings that matter, the data's content, the plug-ins'."""
        decisive = self.model_dump(mode="json", exclude={"place": True, "settings": {"engine"}})
        for section, names in ADDED.items():
            for name in names:
                if getattr(getattr(self, section), name) == SECTIONS[section].model_fields[name].default:
                    del decisive[section][name]
        decisive["device"] = self.place.device
        if self.dealing.partition is not None:
            decisive["dealing"]["partition"] = hashlib.sha256(self.dealing.partition.read_bytes()).hexdigest()
        if self.training.kernels != "standard":
            decisive["kernel_library"] = identity()
        plugins = [hashlib.sha256(path.read_bytes()).hexdigest() for path in self.place.plugin]
        text = json.dumps([decisive, data_checksum, plugins], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def arrange(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put settings into their sections, fill in what suits the data set, and resolve every component's own."""
    plain, components = _sorted_out(values)
    if "plugin" in plain:
        load_plugins(validate(Place, {"plugin": plain["plugin"]}).plugin)
    source = datasets.get(_chosen("dataset", plain))
    suited = dict(source.recommended)
    given = {name: plain.pop(name) for name in list(plain) if name in SECTION_OF}
    brings_clients = given.get("partition") is not None or given.get("partition_by") == "natural"
    if brings_clients and "clients" not in given:
        suited.pop("clients", None)
    top = {**{name: suited[name] for name in suited if name in Experiment.model_fields}, **plain}
    flat = {**{name: suited[name] for name in suited if name in SECTION_OF}, **given}
    if flat.get("optimizer", "sgd") != "sgd" and "lr" not in given:
        flat["lr"] = ADAM_RATE
    chosen = {role: _chosen(role, {**flat, **top}) for role in ROLES}
    own = _by_role(components, chosen)
    if chosen["model"] in suited:
        own["model"] = {**suited[chosen["model"]], **own.get("model", {})}
    arranged: dict[str, Any] = {**top, "settings": _resolved(own, chosen)}
    for section, model in SECTIONS.items():
        arranged[section] = validate(model, {n: v for n, v in flat.items() if SECTION_OF[n] == section})
    kd, method = arranged["training"].local_kd, chosen["method"]
    if kd != "off" and methods.get(method).distils:
        raise InputError(f"local_kd is {kd!r}: method {method!r} distils by itself; allowed: off")
    return arranged


def _sorted_out(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Take settings of an experiment and settings of components apart, however they were written."""
    plain: dict[str, Any] = {}
    components: dict[str, dict[str, Any]] = {}

    def take(name: str, value: Any) -> None:
        section, dot, key = name.partition(".")
        if name == "settings" or name in SECTIONS:
            if not isinstance(value, Mapping | BaseSettings):
                raise InputError(f"{name} is {value!r}; allowed: a section of settings")
            inner = value.model_dump(exclude_unset=True) if isinstance(value, BaseSettings) else value
            for inner_name, inner_value in inner.items():
                if name == "settings":
                    take_component(inner_name, inner_value)
                else:
                    take_own(name, inner_name, inner_value)
        elif dot and section in SECTIONS:
            take_own(section, key, value)
        elif dot:
            components.setdefault(section, {})[key] = value
        elif name in SECTION_OF or name in Experiment.model_fields:
            plain[name] = value
        elif isinstance(value, Mapping) or any(name in components for components in ROLES.values()):
            take_component(name, value)
        else:
            raise unknown("setting", name, [*(n for n in Experiment.model_fields if n not in SECTIONS), *SECTION_OF])

    def take_own(section: str, key: str, value: Any) -> None:
        if SECTION_OF.get(key) != section:
            raise unknown("setting", f"{section}.{key}", (f"{section}.{n}" for n in SECTIONS[section].model_fields))
        plain[key] = value

    def take_component(name: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise InputError(f"settings of {name} are {value!r}; allowed: a section such as {{mu: 0.7}}")
        components.setdefault(name, {}).update(value)

    for name, value in values.items():
        take(name, value)
    return plain, components


def _chosen(role: str, plain: Mapping[str, Any]) -> str:
    model = Place if role == "engine" else Experiment
    name = plain.get(role, model.model_fields[role].default)
    if not isinstance(name, str):
        raise InputError(f"{role} is {name!r}; allowed: a name")
    return name


def _by_role(components: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Find out whose settings a section holds: a role's (`method`), or a chosen component's by its name (`xfed`)."""
    own: dict[str, dict[str, Any]] = {}
    for section, values in components.items():
        roles = [section] if section in ROLES else [role for role, name in chosen.items() if name == section]
        if not roles:
            owner = next((role for role, registry in ROLES.items() if section in registry), None)
            if owner is None:
                raise unknown("section of settings", section, {*chosen.values()})
            raise InputError(
                f"{section}.{next(iter(values), 'KEY')} is a setting of the {owner} {section!r}, and the {owner} is "
                f"{chosen[owner]!r}; allowed: settings of {', '.join(sorted({*chosen.values()}))}"
            )
        if len(roles) > 1:
            raise InputError(
                f"{section!r} is the {' and the '.join(roles)}; write {' or '.join(f'{role}.KEY' for role in roles)}"
            )
        own.setdefault(roles[0], {}).update(values)
    return own


def _resolved(own: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Write out all settings of the chosen components, defaults included.

    An engine is looked up when a run starts: who only reads a run needs none.
    """
    resolved = {}
    for role, name in chosen.items():
        values = dict(own.get(role, {}))
        if role != "engine":
            component: type[Component] = ROLES[role].get(name)
            values = component.resolve(values).model_dump(mode="json")
        if values:
            resolved[role] = values
    return resolved


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML settings file."""
    what = f"settings file {str(path)!r}"
    try:
        values = parse(path.read_text(encoding="utf-8"), what)
    except OSError as error:
        raise InputError(in_words(error)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not YAML but something binary: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"settings file {str(path)!r} must hold 'key: value' lines")
    return values
