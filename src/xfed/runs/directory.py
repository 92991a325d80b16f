"""A run on disk. All file names stand here; everything after training reads this folder and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import safetensors
from torch import Tensor

from xfed.data.card import DataCard
from xfed.data.dealing.partition import Partition
from xfed.errors import InputError
from xfed.evaluation.summary import RoundAccuracy
from xfed.evaluation.traces import ExitTrace
from xfed.files import content_digest, read_metadata, read_tensors, write_json, write_tensors, write_text
from xfed.models.layout import ModelState
from xfed.protocol.words import Evaluated
from xfed.runs.checkpoint import Checkpoints
from xfed.runs.index import NAME, Change, Digest, Index, Indexed
from xfed.runs.lock import LOCK, alone, holder, in_use
from xfed.runs.records import RoundRecord, read_metrics, read_rounds, write_metrics, write_rounds
from xfed.runs.settings import read_settings
from xfed_runtime.answers import Answer

TraceOf = Literal["calibration", "test"]
NOTED = ("xfed", "code", "fingerprint", "kernels", "started", "network", "majority_baseline")
"""What every run notes of its surroundings, and what reading it needs."""
FIGURE = "accuracy.png"
"""What `xfed plot` draws of one run, beside it."""
BESIDE = frozenset({LOCK, NAME, "finished.json", "policies", "tensorboard", "mlflow.json", FIGURE})
"""What lies in a run directory and is no result of the run: it may come and go."""


class RunDirectory:
    """Names, writes and reads the files of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings_file = root / "settings.yaml"
        self.environment_file = root / "environment.json"
        self.card_file = root / "data.json"
        self.initial_file = root / "initial.safetensors"
        self.partition = root / "partition.safetensors"
        self.plugins = root / "plugins"
        self.rounds_file = root / "rounds.parquet"
        self.metrics = root / "metrics"
        self.traces = root / "traces"
        self.notes = root / "notes"
        self.client_states = root / "state" / "clients"
        self.server_states = root / "state" / "server"
        self.models = root / "models"
        self.policies = root / "policies"
        self.tensorboard = root / "tensorboard"
        self.mlflow_file = root / "mlflow.json"
        self.log_file = root / "run.log"
        self.finished_file = root / "finished.json"
        self.checkpoints = Checkpoints(root / "checkpoints")
        self.index = Indexed(root)

    @classmethod
    def open(cls, root: Path) -> RunDirectory:
        """Open an existing run."""
        run = cls(root)
        with suppress(FileNotFoundError, NotADirectoryError):
            run.settings_file.stat()  # what else keeps it from being read is an error of its own
        if not run.settings_file.is_file():
            raise InputError(f"{str(root)!r} is not a run directory (it has no settings.yaml)")
        return run

    def refuse_existing(self) -> None:
        """Make sure that nothing would be overwritten; a lock alone is what a start that was refused left."""
        if self.root.exists() and (not self.root.is_dir() or any(p.name != LOCK for p in self.root.iterdir())):
            working = holder(self.root)
            if working is not None and working.get("pid") != os.getpid():
                raise in_use(self.root, working)
            if not self.settings_file.is_file():
                raise InputError(f"{str(self.root)!r} exists already, and is no run; give another --out")
            raise InputError(
                f"run directory {str(self.root)!r} exists already; give another --out, or continue it with "
                f"'xfed resume {self.root}'"
            )

    def alone(self) -> AbstractContextManager[None]:
        """Hold the run for this process alone."""
        return alone(self.root)

    def checked(self, path: Path) -> Path:
        """Give the path of a file that is what the index says; anything else is an error that names it."""
        self.index.check(path, self.finished)
        return path

    def written(self) -> list[Path]:
        """List all files that make up the run, in order."""
        found = (path for path in self.root.rglob("*") if path.is_file() and not path.name.endswith(".tmp"))
        return sorted(path for path in found if path.relative_to(self.root).parts[0] not in BESIDE)

    # What is true from the start

    def create(
        self,
        settings: str,
        environment: Mapping[str, Any],
        card: DataCard,
        initial: ModelState,
        partition: Partition,
        plugins: Mapping[str, str],
    ) -> Partition:
        """Start a new run, and give the partition as it lies there for all processes to map.

        Settings are written last, after their index, so a folder that has them is complete.
        """
        for name, source in plugins.items():
            write_text(self.plugins / name, source)
        write_json(self.environment_file, dict(environment))
        write_json(self.card_file, card.to_json())
        write_tensors(self.initial_file, {"parameters": initial.parameters, "statistics": initial.statistics})
        saved = partition.save(self.partition)
        started = self.index.digests(self.written())
        started[self.settings_file.name] = Digest.of_text(settings)
        self.index.write(Index(settings, started, tuple(sorted(plugins))))
        write_text(self.settings_file, settings)
        return saved

    def settings(self) -> dict[str, Any]:
        """Read the resolved settings, with what the run was continued with otherwise; edited ones are refused."""
        return read_settings(self.settings_file, self.index.get())

    def changes(self) -> tuple[Change, ...]:
        """Give what the run was continued with otherwise, in order."""
        index = self.index.get()
        return () if index is None else index.changes

    def plugin_files(self) -> list[Path]:
        """List the plug-ins in use: those that the run was started with, or what took their place."""
        index = self.index.get()
        if index is None:
            return sorted(self.plugins.glob("*.py"))
        return [self.checked(self.plugins / name) for name in index.plugins]

    def environment(self) -> dict[str, Any]:
        """Read versions, checksums and what else was true when the run started."""
        environment: dict[str, Any] = _read_json(self.checked(self.environment_file))
        lacking = [name for name in NOTED if not isinstance(environment, dict) or name not in environment]
        if lacking:
            raise InputError(f"{str(self.environment_file)!r} is damaged: it lacks {', '.join(lacking)}")
        return environment

    def card(self) -> DataCard:
        """Read what there is to know of the data besides the samples."""
        return DataCard.from_json(_read_json(self.checked(self.card_file)))

    def initial(self) -> ModelState:
        """Read the numbers that server and clients started from."""
        tensors = _read_tensors(self.checked(self.initial_file))
        return ModelState(tensors["parameters"].clone(), tensors["statistics"].clone())

    # What is added round by round

    def write_rounds(self, records: Sequence[RoundRecord]) -> None:
        """Write what all rounds so far moved and cost."""
        write_rounds(self.rounds_file, records)

    def rounds(self) -> list[RoundRecord]:
        """Read what the rounds moved and cost."""
        return read_rounds(self.checked(self.rounds_file))

    def write_evaluation(
        self, round: int, evaluated: Sequence[Evaluated], trained: set[int], population: int, answers: Answer
    ) -> RoundAccuracy:
        """Write one evaluated round, and the exits' traces where there are any."""
        accuracy = write_metrics(self.metric_file(round), round, evaluated, trained, population, answers)
        for of in ("test", "calibration"):
            traces = [ExitTrace.from_message(e.client, e.traces[of]) for e in evaluated if of in e.traces]
            if any(map(len, traces)):
                ExitTrace.concatenate(traces).write(self.trace(of, round))
        return accuracy

    def metric_file(self, round: int) -> Path:
        """Name the file of an evaluated round."""
        return self.metrics / f"round-{round:06d}.parquet"

    def metric_files(self) -> list[Path]:
        """List the files of evaluated rounds, in order; of a finished run all that it wrote must be there."""
        index = self.index.get()
        known = index.finished if index is not None and self.finished else None
        names = [name for name in known or () if name.startswith(f"{self.metrics.name}/")]
        there = (path.relative_to(self.root).as_posix() for path in self.metrics.glob("round-*.parquet"))
        return [self.checked(self.root / name) for name in sorted({*names, *there})]

    def evaluations(self, until: int | None = None, answers: Answer | None = None) -> list[RoundAccuracy]:
        """Read the evaluated rounds, in order; by default with the answers that count in the run."""
        found = [read_metrics(path, answers) for path in self.metric_files()]
        return [accuracy for accuracy in found if until is None or accuracy.round <= until]

    def trace(self, of: TraceOf, round: int) -> Path:
        """Name the trace file of one round."""
        return self.traces / f"{of}-{round:06d}.parquet"

    def latest_trace(self, of: TraceOf) -> Path | None:
        """Find the last trace file, where there is one."""
        index = self.index.get()
        known = index.finished if index is not None and self.finished else None
        noted = [self.root / name for name in known or () if name.startswith(f"{self.traces.name}/{of}-")]
        return max([*noted, *self.traces.glob(f"{of}-*.parquet")], default=None)

    def write_notes(self, round: int, notes: Mapping[str, Tensor]) -> None:
        """Write what the method noted in a round."""
        write_tensors(self.notes / f"round-{round:06d}.safetensors", notes)

    def read_notes(self, round: int) -> dict[str, Tensor]:
        """Read what the method noted in a round; nothing where it noted nothing."""
        path = self.notes / f"round-{round:06d}.safetensors"
        return _read_tensors(self.checked(path)) if path.is_file() else {}

    # What is there at the end

    def write_model(self, client: int, shared: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        """Write a final model: what clients share once, by its digest, and the client's own beside it."""
        name = f"shared-{content_digest(shared)[:16]}.safetensors" if shared else ""
        if shared and not (self.models / name).exists():
            write_tensors(self.models / name, shared)
        write_tensors(self.client_model(client), own, {"shared": name})

    def client_model(self, client: int) -> Path:
        """Name the file of a client's final model."""
        return self.models / f"client-{client:06d}.safetensors"

    def own_tensors(self, client: int) -> dict[str, Tensor]:
        """Read what of the final model is the client's own, by `state_dict` name."""
        return _read_tensors(self._existing_model(client))

    def shared_file(self, client: int) -> str:
        """Name the file with what the client's final model shares with others; empty where it shares nothing."""
        path = self._existing_model(client)
        try:
            return read_metadata(path)["shared"]
        except (safetensors.SafetensorError, OSError, KeyError) as error:
            raise InputError(f"{str(path)!r} is damaged: {error}") from None

    def shared_tensors(self, client: int) -> dict[str, Tensor]:
        """Read what the client's final model shares with others."""
        name = self.shared_file(client)
        if not name:
            return {}
        path = self.models / Path(name).name
        tensors = _read_tensors(self.checked(path))
        if path.name != f"shared-{content_digest(tensors)[:16]}.safetensors":
            raise InputError(f"{str(path)!r} is damaged: its content is not what its name says")
        return tensors

    def _existing_model(self, client: int) -> Path:
        path = self.checked(self.client_model(client))
        if not path.is_file():
            raise InputError(
                f"run {str(self.root)!r} has no final model of client {client}; "
                "it has those of the clients that were evaluated at its end"
            )
        return path

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the run as complete, once everything that it wrote is in the index."""
        index = self.index.get()
        if index is not None:
            found = self.index.digests(path for path in self.written() if self.index.name(path) not in index.started)
            self.index.write(replace(index, finished=found))
        write_json(self.finished_file, dict(summary))

    @property
    def finished(self) -> bool:
        """Tell whether the run came to its end."""
        return self.finished_file.is_file()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}") from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return read_tensors(path)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}") from None
