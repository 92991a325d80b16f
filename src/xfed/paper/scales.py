"""The paper's protocol, and what of it each scale keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from xfed.errors import InputError, unknown
from xfed.models.network import models

Scale = Literal["full", "small", "tiny"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Task:
    """A data set of the paper: its rounds, the MACs it quotes, and how networks and rounds shrink at scale small."""

    title: str
    rounds: int
    macs: float
    """Of the static model, as published."""
    epsilon: float
    """Threshold of X-FED in the comparison with single-exit models."""
    small_rounds: int
    small: Mapping[str, Any]
    tiny: Mapping[str, Any]


CONVNET = {"model": "convnet", "convnet.width": 6}
RESNET = {"model": "resnet18", "resnet18.width": 4, "resnet18.depth": 1}

TASKS: dict[str, Task] = {
    "cifar10": Task("CIFAR-10", 300, 30.39e6, 0.8, 100, {"convnet.width": 32, "lr_decay": 0.99}, CONVNET),
    "cifar100": Task("CIFAR-100", 300, 557.94e6, 0.6, 60, {"resnet18.width": 8}, RESNET),
    "tiny-imagenet": Task(
        "Tiny ImageNet", 300, 2231.64e6, 0.6, 20, {"resnet18.width": 4, "resnet18.depth": 1}, RESNET
    ),
    "agnews": Task(
        "AG News", 100, 811.57e6, 0.8, 40,
        {"transformer.width": 64, "transformer.feedforward": 256, "agnews.max_length": 64}, CONVNET,
    ),
}  # fmt: skip

SETTINGS = (
    ("cifar10", 0.3),
    ("cifar10", 0.1),
    ("cifar100", 0.3),
    ("cifar100", 0.1),
    ("tiny-imagenet", 0.3),
    ("tiny-imagenet", 0.1),
    ("agnews", 0.3),
)
"""Columns of Table 1: data set and α."""

STAND_IN: dict[str, Any] = {
    "dataset": "digits", "clients": 10, "sample": 0.3, "rounds": 3, "epochs": 1, "batch_size": 32, "lr": 0.1,
    "eval_every": 1, "engine": "serial",
}  # fmt: skip
DECAY = 0.99
EMPTY: Mapping[str, Any] = {}
CHOSEN = ("dataset", "alpha", "method", "seed")
"""What tables and figures have rows and columns for."""


def settings(dataset: str, alpha: float, scale: Scale, rounds: int | None = None) -> dict[str, Any]:
    """Give an experiment's settings but for method and seed; at scale small the rate falls as far in any `rounds`."""
    task = TASKS[dataset]
    common = {"alpha": alpha, "calibration": 0.0}
    if scale == "tiny":
        return {**STAND_IN, **task.tiny, **common}
    values: dict[str, Any] = {"dataset": dataset, **common}
    if scale == "small":
        rounds = rounds or task.small_rounds
        values |= {"rounds": rounds, "lr_decay": DECAY ** (task.rounds / rounds), **task.small}
        values["eval_every"] = max(1, rounds // 10)
    return values


def in_words(scale: Scale, datasets: Sequence[str], changes: Mapping[str, Any]) -> str:
    """Say on every output what the scale means, and what is set otherwise."""
    otherwise = ", ".join(f"{name} = {value}" for name, value in changes.items())
    return _of_scale(scale, datasets) + (f" Otherwise than there: {otherwise}." if changes else "")


def _of_scale(scale: Scale, datasets: Sequence[str]) -> str:
    tasks = [TASKS[name] for name in dict.fromkeys(datasets)]
    if not tasks:
        return f"Scale {scale}: no runs are needed."
    if scale == "full":
        return "Scale full: the paper's protocol."
    if scale == "small":
        rounds = ", ".join(f"{task.title} {task.small_rounds} rounds" for task in tasks)
        return f"Scale small: the paper's protocol with narrow networks ({rounds})."
    names = ", ".join(task.title for task in tasks)
    return f"Scale tiny, for tests: handwritten digits stand in for {names}; the numbers mean nothing."


@dataclass(frozen=True)
class Wanted:
    """A run that a table or figure shows: data set, α, method, and what is set otherwise, under a name."""

    dataset: str
    alpha: float
    method: str
    variant: str = ""
    changes: tuple[tuple[str, Any], ...] = ()

    def values(self, scale: Scale, changes: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
        """Give the experiment's settings but for the seed: the scale's, what all runs change of it, and its own.

        Where all runs change the network, no setting of the scale's network remains.
        """
        rounds = changes.get("rounds")
        general = settings(self.dataset, self.alpha, scale, rounds if isinstance(rounds, int) and rounds > 0 else None)
        if "model" in changes:
            others = {model.name for model in models} - {changes["model"]}
            general = {key: value for key, value in general.items() if key.partition(".")[0] not in others}
        return {**general, **changes, "method": self.method, **dict(self.changes)}


@dataclass(frozen=True)
class Choice:
    """What of a table or figure a user wants: at which scale, for which data sets, methods and seeds."""

    scale: Scale
    datasets: Sequence[str] | None = None
    alphas: Sequence[float] | None = None
    methods: Sequence[str] | None = None
    seeds: Sequence[int] = (1,)
    place: Mapping[str, Any] = field(default_factory=dict)
    """Where runs are carried out: engine, workers, data_dir."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What all runs set otherwise than their scale."""

    def __post_init__(self) -> None:
        for name in CHOSEN:
            if name in self.changes:
                raise InputError(
                    f"--set {name}: a table or figure chooses that; allowed: any setting but {', '.join(CHOSEN)}"
                )

    def of(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Restrict what a table or figure shows to what is chosen; a choice that it does not have is refused."""
        for chosen, there, kind in (
            (self.datasets, {each.dataset for each in wanted}, "data set"),
            ([f"{a:g}" for a in self.alphas or ()], {f"{each.alpha:g}" for each in wanted}, "α"),
            (self.methods, {each.method for each in wanted}, "method"),
        ):
            for name in chosen or ():
                if name not in there:
                    raise unknown(f"{kind} in this table or figure", name, there)
        found = [
            each
            for each in wanted
            if each.dataset in (self.datasets or [each.dataset])
            and each.alpha in (self.alphas or [each.alpha])
            and each.method in (self.methods or [each.method])
        ]
        if wanted and not found:
            raise InputError("no run has this data set and this method; leave --datasets, --alphas or --methods out")
        return found
