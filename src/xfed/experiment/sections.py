"""The sections of an experiment. A setting stands in one of them, with its one default and its description."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from xfed.components import BaseSettings
from xfed.data.augmentation import Change
from xfed.evaluation.metrics import require_metrics
from xfed.kernels.choice import KernelChoice
from xfed.protocol.algorithm import LocalDistillation, Statistics
from xfed.protocol.client import Schedule
from xfed.protocol.optimizer import DEFAULT_RATES, ServerOptimizer, ServerOptimizerKind
from xfed.training.optimizers import OptimizerKind

OnFailure = Literal["stop", "drop"]
TrackerName = Literal["tensorboard", "mlflow", "wandb"]


def listed(value: Any) -> Any:
    """Take text with commas for several values."""
    return tuple(value.split(",")) if isinstance(value, str) else value


class Training(BaseSettings):
    """Rounds, who takes part in them, local training, and what the server makes of it."""

    rounds: PositiveInt = Field(30, description="communication rounds")
    sample: PositiveFloat = Field(0.5, description="share of the clients that take part in a round, at most 1")
    epochs: PositiveInt = Field(5, description="local epochs per round")
    batch_size: PositiveInt = Field(64, description="samples per step")
    optimizer: OptimizerKind = Field("sgd", description="steps of local training; with a fresh memory every time")
    lr: PositiveFloat = Field(0.1, description="learning rate of round 1; with adam and adamw 0.001")
    lr_decay: PositiveFloat = Field(0.99, description="factor on the learning rate after every round")
    momentum: NonNegativeFloat = Field(0.9, description="momentum of SGD, β₁ of Adam; empty at every participation")
    weight_decay: NonNegativeFloat = Field(1e-4, description="weight decay; adamw decouples it from the gradient")
    augment: tuple[Change, ...] = Field((), description="change training images at random: one or both with a comma")
    normalise: Literal["fixed", "channels"] = Field(
        "fixed", description="images to −1 … 1; or each channel by its mean and std over all samples"
    )
    bn_statistics: Statistics = Field("local", description="BatchNorm statistics stay on the client, or are averaged")
    local_kd: LocalDistillation = Field(
        "off", description="every exit also learns from the client's own last exit: divergences summed, or over m"
    )
    refit: NonNegativeFloat | None = Field(
        None,
        description="ρ of refitting personal exits to the newest backbone before evaluation, such as 0.03; 0: never; "
        "default: the method's choice",
    )
    server_optimizer: ServerOptimizerKind = Field(
        "average",
        description="take averages as they are, or step towards them: sgd, momentum (FedAvgM), adam (FedAdam)",
    )
    server_lr: PositiveFloat | None = Field(None, description="rate of the server's steps; default: 1, with adam 0.01")
    server_momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the server's steps (adam: of the mean)")
    kernels: KernelChoice = Field(
        "standard",
        description="torch's kernels; or compiled ones for some layers, which give other bits; or whichever is faster",
    )
    on_failure: OnFailure = Field(
        "stop", description="when a client fails: stop (nothing is lost), or drop it from the round and go on"
    )
    min_replies: PositiveInt | None = Field(
        None, description="with drop: fewest clients a round is complete with; default 1"
    )

    @field_validator("augment", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("sample")
    @classmethod
    def _at_most_all(cls, share: float) -> float:
        if share > 1:
            raise ValueError("more sampled clients than there are clients; allowed: above 0, at most 1")
        return share

    @model_validator(mode="after")
    def _agreeing(self) -> Training:
        if self.min_replies is not None and self.on_failure == "stop":
            raise ValueError("min_replies goes with on_failure drop; with stop, all must answer")
        if self.server_lr is not None and self.server_optimizer == "average":
            raise ValueError("server_lr goes with server_optimizer sgd, momentum or adam")
        default = type(self).model_fields["server_momentum"].default
        if self.server_momentum != default and self.server_optimizer in ("average", "sgd"):
            raise ValueError("server_momentum goes with server_optimizer momentum or adam")
        return self

    def schedule(self) -> Schedule:
        """Give the local training that all methods share."""
        return Schedule(
            epochs=self.epochs,
            rate=self.lr,
            decay=self.lr_decay,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            rounds=self.rounds,
            optimizer=self.optimizer,
        )

    def server_step(self) -> ServerOptimizer | None:
        """Give the server's optimizer; nothing for plain averages."""
        if self.server_optimizer == "average":
            return None
        rate = self.server_lr or DEFAULT_RATES[self.server_optimizer]
        return ServerOptimizer(self.server_optimizer, rate, self.server_momentum)


class Evaluating(BaseSettings):
    """When clients are evaluated, which ones, and what comes back."""

    eval_every: PositiveInt = Field(10, description="evaluate every so many rounds, and in the last five")
    eval_clients: PositiveInt | None = Field(
        None, description="how many clients to evaluate; default: all up to 1,000, above that a fixed sample of 1,000"
    )
    traces: bool = Field(
        True, description="keep what every exit said of every sample, which calibration needs; off: counts alone"
    )
    metrics: tuple[str, ...] = Field(
        (), description="figures per client and exit beside accuracy, with commas: loss, f1, calibration_error, or own"
    )

    @field_validator("metrics", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("metrics")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        require_metrics(names)
        return names


def _known_to_torch(device: str, others: ValidationInfo) -> str:
    """Refuse what torch cannot use here, where here is where clients run: a cluster's GPUs are elsewhere."""
    import torch

    if device == "cuda" and others.data.get("engine") == "ray":
        return device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"torch cannot use this device here ({str(error).splitlines()[0]})") from None
    return device


class Place(BaseSettings):
    """Where and how a run is carried out."""

    engine: str = Field("processes", description="where clients run; `xfed engines` lists them")
    workers: PositiveInt | None = Field(
        None, description="workers of the engine; default: one per core, or one per GPU"
    )
    device: Annotated[str, AfterValidator(_known_to_torch)] = Field("cpu", description="torch device")
    checkpoint_every: PositiveInt = Field(1, description="save every so many rounds")
    data_dir: Path | None = Field(None, description="folder with raw data; default: XFED_DATA, then a cache")
    out: Path | None = Field(None, description="run directory; default: a new one under runs/")
    track: tuple[TrackerName, ...] = Field((), description="show the rounds there too, one or several with commas")
    plugin: tuple[Path, ...] = Field((), description="Python file that registers methods, data sets, models or engines")

    @field_validator("track", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("plugin", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str | Path) else value
