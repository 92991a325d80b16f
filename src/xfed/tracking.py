"""Runs in TensorBoard, MLflow and Weights & Biases, for those who have them: they watch the rounds go by.

What the run directory holds is always there and complete; trackers show the same figures elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from xfed.errors import InputError
from xfed.evaluation.summary import RoundAccuracy
from xfed.experiment import Experiment
from xfed.experiment.sections import TrackerName
from xfed.federation.watching import Watcher
from xfed.files import write_json
from xfed.runs.directory import RunDirectory
from xfed.runs.records import RoundRecord

EXPERIMENT = "xfed"
"""Under which name MLflow and Weights & Biases gather runs."""


class Tracker(Watcher):
    """A watcher that ends."""

    def close(self) -> None:
        """Write out what is left."""


def require(names: Sequence[TrackerName]) -> None:
    """Refuse trackers that are not installed, before any work starts."""
    for name in names:
        if find_spec(name) is None:
            raise InputError(f"track is {name!r}, which is not installed; 'pip install xfed[{name}]' adds it")


@contextmanager
def tracking(experiment: Experiment, directory: RunDirectory, done: int) -> Iterator[Sequence[Tracker]]:
    """Open the trackers that an experiment names; `done` rounds are behind it."""
    open_one: Mapping[TrackerName, Callable[[Experiment, RunDirectory, int], Tracker]] = {
        "tensorboard": TensorBoard,
        "mlflow": MLflow,
        "wandb": WeightsAndBiases,
    }
    opened: list[Tracker] = []
    try:
        for name in experiment.place.track:
            opened.append(open_one[name](experiment, directory, done))
        yield opened
    finally:
        for tracker in opened:
            tracker.close()


def figures(record: RoundRecord, accuracy: RoundAccuracy | None) -> dict[str, float]:
    """Give a round's figures by name; accuracies where it was evaluated."""
    found = {"train/loss": record.loss, "train/macs": record.macs, "train/replies": record.replies}
    found |= {"bytes/down": record.bytes_down, "bytes/up": record.bytes_up}
    if accuracy is not None:
        found |= {"accuracy/averaged": accuracy.mean, "accuracy/std_over_clients": accuracy.std}
        found |= {f"accuracy/exit_{j}": value for j, value in enumerate(accuracy.exits, 1)}
    return {name: float(value) for name, value in found.items()}


def flat_settings(experiment: Experiment) -> dict[str, Any]:
    """Give all settings that decide numbers, by dotted name."""
    plain = experiment.model_dump(mode="json", exclude={"place"})
    for section in ("dealing", "training", "evaluation"):
        plain |= {f"{section}.{name}": value for name, value in plain.pop(section).items()}
    for role, values in plain.pop("settings").items():
        plain |= {f"{role}.{name}": value for name, value in values.items()}
    return plain


class TensorBoard(Tracker):
    """Event files in the run directory; rounds that are done again replace those seen before."""

    def __init__(self, experiment: Experiment, directory: RunDirectory, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory.tensorboard), purge_step=done + 1)
        self._writer.add_text("settings", f"```yaml\n{experiment.to_yaml()}```", done)

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Write a round's figures."""
        for name, value in figures(record, accuracy).items():
            self._writer.add_scalar(name, value, record.round)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class MLflow(Tracker):
    """A run on the tracking server that MLFLOW_TRACKING_URI names; a resumed run goes on there."""

    def __init__(self, experiment: Experiment, directory: RunDirectory, done: int) -> None:
        import mlflow

        logging.getLogger("mlflow").setLevel(logging.ERROR)
        try:
            self._client = mlflow.MlflowClient()
            self._id = self._known(directory) or self._begin(experiment, directory)
        except mlflow.exceptions.MlflowException as error:
            raise InputError(f"MLflow cannot be used: {' '.join(str(error).split())[:200]}") from None

    @staticmethod
    def _known(directory: RunDirectory) -> str | None:
        if not directory.mlflow_file.is_file():
            return None
        try:
            noted: str = json.loads(directory.mlflow_file.read_text(encoding="utf-8"))["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{str(directory.mlflow_file)!r} is damaged ({error}); delete it to begin anew in MLflow"
            ) from None
        return noted

    def _begin(self, experiment: Experiment, directory: RunDirectory) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        home = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        begun: str = self._client.create_run(home, run_name=directory.root.name).info.run_id
        for name, value in flat_settings(experiment).items():
            self._client.log_param(begun, name, value)
        write_json(directory.mlflow_file, {"run": begun})
        return begun

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Send a round's figures."""
        for name, value in figures(record, accuracy).items():
            self._client.log_metric(self._id, name, value, step=record.round)

    def close(self) -> None:
        """Mark the run as ended."""
        self._client.set_terminated(self._id)


class WeightsAndBiases(Tracker):
    """Files in the run directory for `wandb sync`, or with WANDB_MODE=online the server; a resumed run keeps its id."""

    def __init__(self, experiment: Experiment, directory: RunDirectory, done: int) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE", "offline")
        try:
            self._run = wandb.init(
                project=EXPERIMENT,
                name=directory.root.name,
                id=self._id(directory),
                resume="allow" if mode == "online" else None,
                dir=str(directory.root),
                mode=mode,  # type: ignore[arg-type]
                config=flat_settings(experiment),
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            raise InputError(f"Weights & Biases cannot be used: {' '.join(str(error).split())[:200]}") from None

    @staticmethod
    def _id(directory: RunDirectory) -> str:
        """Name the run there by what it computes and when it began, the same after every resumption."""
        noted = directory.environment()
        return hashlib.sha256(f"{noted['fingerprint']} {noted['started']}".encode()).hexdigest()[:16]

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Note a round's figures."""
        self._run.log(figures(record, accuracy), step=record.round)

    def close(self) -> None:
        """Write out what is left."""
        self._run.finish()
