"""One typed description of a run. Everything that decides its numbers is here; the rest says where it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from xfed.components import BaseSettings, Component, load_plugins, validate
from xfed.data.dataset import DatasetSource, datasets
from xfed.data.dealing.partitioning import PartitionBy, PartitionPlan
from xfed.errors import InputError, unknown
from xfed.kernels.choice import KernelChoice
from xfed.kernels.library import identity
from xfed.models.network import ExitPlacement, ModelSource, models
from xfed.protocol.algorithm import Algorithm, LocalDistillation, Statistics, methods
from xfed.protocol.client import Schedule

ELSEWHERE = ("engine", "workers", "out", "plugin", "checkpoint_every")
"""Fields that say where and how a run is carried out and cannot change its numbers."""


def _known_to_torch(device: str) -> str:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"torch cannot use this device here ({str(error).splitlines()[0]})") from None
    return device


class Experiment(BaseSettings):
    """A run: method, data, network, protocol. Defaults train X-FED on the embedded data in seconds."""

    method: str = Field("xfed", description="federated method; `xfed methods` lists them")
    dataset: str = Field("digits", description="data set; `xfed datasets` lists them")
    model: str = Field("convnet", description="network; `xfed models` lists them")
    exits: ExitPlacement = Field("all", description="an exit after every stage, or the last one alone")

    clients: PositiveInt = Field(20, description="number of clients")
    sample: PositiveFloat = Field(0.5, description="share of the clients that take part in a round, at most 1")
    partition_by: PartitionBy | None = Field(
        None, description="how samples are dealt out; default: the partition file if there is one, else dirichlet"
    )
    alpha: PositiveFloat = Field(0.3, description="Dirichlet label skew: smaller is more skewed")
    cap: bool = Field(True, description="Dirichlet: a client that holds its fair number of samples gets no more")
    classes_per_client: PositiveInt = Field(2, description="pathological: number of classes each client holds")
    min_samples: int = Field(4, ge=2, description="smallest number of samples a client may get")
    samples_per_client: int = Field(100, ge=2, description="overlapping: number of samples each client draws")
    partition: Path | None = Field(
        None, description="JSON file with each client's train and test indices, or partition.safetensors of a run"
    )
    calibration: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="share of the training samples set aside to calibrate exits; 0 in the paper",
    )

    rounds: PositiveInt = Field(30, description="communication rounds")
    epochs: PositiveInt = Field(5, description="local epochs per round")
    batch_size: PositiveInt = Field(64, description="samples per step")
    lr: PositiveFloat = Field(0.1, description="learning rate of round 1")
    lr_decay: PositiveFloat = Field(0.99, description="factor on the learning rate after every round")
    momentum: NonNegativeFloat = Field(0.9, description="momentum of SGD; empty at every participation")
    weight_decay: NonNegativeFloat = Field(1e-4, description="weight decay of SGD")
    bn_statistics: Statistics = Field("local", description="BatchNorm statistics stay on the client, or are averaged")
    local_kd: LocalDistillation = Field(
        "off", description="every exit also learns from the client's own last exit: divergences summed, or over m"
    )
    seed: NonNegativeInt = Field(1, description="decides partition, cohorts, initial weights and batches")

    eval_every: PositiveInt = Field(10, description="evaluate every so many rounds, and in the last five")
    eval_clients: PositiveInt | None = Field(
        None, description="how many clients to evaluate; default: all up to 1,000, above that a fixed sample of 1,000"
    )
    checkpoint_every: PositiveInt = Field(1, description="save every so many rounds")
    engine: Literal["processes", "serial"] = Field("processes", description="where clients run")
    workers: PositiveInt | None = Field(None, description="worker processes; default: one per core, or one per GPU")
    device: Annotated[str, AfterValidator(_known_to_torch)] = Field("cpu", description="torch device")
    kernels: KernelChoice = Field(
        "standard",
        description="torch's kernels; or compiled ones for some layers, which give other bits; or whichever is faster",
    )
    out: Path | None = Field(None, description="run directory; default: a new one under runs/")
    plugin: tuple[Path, ...] = Field((), description="Python file that registers methods, data sets or models")
    settings: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="settings of the method, data set and model, by their names"
    )

    @field_validator("sample")
    @classmethod
    def _at_most_all(cls, share: float) -> float:
        if share > 1:
            raise ValueError("more sampled clients than there are clients; allowed: above 0, at most 1")
        return share

    @field_validator("plugin", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str | Path) else value

    @model_validator(mode="before")
    @classmethod
    def _recommended(cls, values: Any) -> Any:
        """Let what suits the data set stand in for the general defaults, plug-in data sets included."""
        if not isinstance(values, dict):
            return values
        load_plugins(cls._one_or_more(values.get("plugin", ())))
        source = datasets.get(values.get("dataset", cls.model_fields["dataset"].default))
        filled = {**source.recommended, **values}
        brings_clients = values.get("partition") is not None or values.get("partition_by") == "natural"
        if brings_clients and "clients" not in values:
            filled.pop("clients", None)
        model = filled.get("model", cls.model_fields["model"].default)
        sections = {name: filled.pop(name) for name in source.recommended if name not in cls.model_fields}
        if model in sections:
            given = dict(filled.get("settings", {}))
            filled["settings"] = {**given, model: {**sections[model], **given.get(model, {})}}
        return filled

    @model_validator(mode="after")
    def _resolve_components(self) -> Experiment:
        """Look the components up and write out all their settings, defaults included."""
        chosen: dict[str, type[Component]] = {
            self.method: methods.get(self.method),
            self.dataset: datasets.get(self.dataset),
            self.model: models.get(self.model),
        }
        if self.local_kd != "off" and methods.get(self.method).distils:
            raise InputError(f"local_kd is {self.local_kd!r}: method {self.method!r} distils by itself; allowed: off")
        for name in self.settings:
            if name not in chosen:
                raise unknown("section of settings", name, chosen)
        for name, component in chosen.items():
            resolved = component.resolve(self.settings.get(name, {})).model_dump(mode="json")
            if resolved:
                self.settings[name] = resolved
        return self

    def load_plugins(self) -> None:
        """Import the plug-in files: needed in a process that received this description ready-made."""
        load_plugins(self.plugin)

    @property
    def cohort_size(self) -> int:
        """Clients per round."""
        return max(1, round(self.sample * self.clients))

    def algorithm(self) -> Algorithm:
        """Build the method."""
        component = methods.get(self.method)
        resolved = component.resolve(self.settings.get(self.method, {}))
        return component(resolved, self.bn_statistics, self.local_kd)

    def dataset_source(self) -> DatasetSource:
        """Build what loads the data."""
        component = datasets.get(self.dataset)
        return component(component.resolve(self.settings.get(self.dataset, {})))

    def model_source(self) -> ModelSource:
        """Build what builds the network."""
        component = models.get(self.model)
        return component(component.resolve(self.settings.get(self.model, {})))

    def partition_plan(self) -> PartitionPlan:
        """Give how the samples are dealt out to clients."""
        return PartitionPlan(
            by=self.partition_by,
            clients=self.clients,
            alpha=self.alpha,
            cap=self.cap,
            classes_per_client=self.classes_per_client,
            min_samples=self.min_samples,
            samples_per_client=self.samples_per_client,
            path=self.partition,
            calibration=self.calibration,
            seed=self.seed,
        )

    def schedule(self) -> Schedule:
        """Give the local training that all methods share."""
        return Schedule(
            epochs=self.epochs,
            rate=self.lr,
            decay=self.lr_decay,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            rounds=self.rounds,
        )

    def to_yaml(self) -> str:
        """Write all settings out; `from_mapping` on the parsed text gives an equal experiment."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def fingerprint(self, data_checksum: str) -> str:
        """Identify the numbers a run will give: settings that matter, data content and code."""
        decisive = self.model_dump(mode="json", exclude=set(ELSEWHERE))
        if self.partition is not None:
            decisive["partition"] = hashlib.sha256(self.partition.read_bytes()).hexdigest()
        if self.kernels != "standard":
            decisive["kernels"] = [self.kernels, identity()]
        plugins = [hashlib.sha256(path.read_bytes()).hexdigest() for path in self.plugin]
        text = json.dumps([decisive, data_checksum, code_version(), plugins], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Experiment:
        """Build from a settings file or command line, where sections and dotted keys name components.

        `{"clients": 10, "xfed": {"mu": 0.7}}` and `{"clients": 10, "xfed.mu": 0.7}` say the same.
        """
        plain: dict[str, Any] = {}
        sections: dict[str, dict[str, Any]] = {name: dict(v) for name, v in (values.get("settings") or {}).items()}
        for key, value in values.items():
            section, dot, name = key.partition(".")
            if dot:
                sections.setdefault(section, {})[name] = value
            elif isinstance(value, Mapping) and key not in cls.model_fields:
                sections.setdefault(key, {}).update(value)
            elif key != "settings":
                plain[key] = value
        return validate(cls, {**plain, "settings": sections})


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML settings file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"settings file {str(path)!r} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InputError(f"settings file {str(path)!r} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"settings file {str(path)!r} must hold 'key: value' lines")
    return values


@cache
def code_version() -> str:
    """Identify the code by the content of its files: this package's, and the device runtime's that it answers with."""
    content = hashlib.sha256()
    for package in ("xfed", "xfed_runtime"):
        [root] = map(Path, import_module(package).__path__)
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".cpp", ".h")):
            content.update(path.relative_to(root.parent).as_posix().encode())
            content.update(path.read_bytes())
    return content.hexdigest()[:16]
