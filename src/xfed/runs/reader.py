"""A run on disk, opened: everything after training asks here. No engine, no raw data, no re-seeding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from torch import Tensor

from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import open_partition
from xfed.errors import InputError
from xfed.evaluation.summary import RoundAccuracy, Summary, summarise
from xfed.evaluation.traces import ExitTrace
from xfed.experiment import Experiment
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork
from xfed.runs.directory import RunDirectory, TraceOf
from xfed.runs.records import RoundRecord, read_table
from xfed.runs.store import ClientStore
from xfed_runtime.answers import Answer

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """A run on disk, finished or not."""

    directory: RunDirectory
    experiment: Experiment

    def __repr__(self) -> str:
        e = self.experiment
        state = "finished" if self.finished else f"{len(self.records())} of {e.training.rounds} rounds done"
        return f"Run({str(self.path)!r}: {e.method} on {e.dataset}, seed {e.seed}, {state})"

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self.directory.root

    @property
    def finished(self) -> bool:
        """Tell whether all rounds are done."""
        return self.directory.finished

    def require_finished(self) -> None:
        """Refuse a run that is not done yet."""
        if not self.finished:
            raise InputError(f"run {str(self.path)!r} is not finished; 'xfed resume {self.path}' continues it")

    def environment(self) -> dict[str, Any]:
        """Give versions, checksums, the majority-class baseline and the network's costs."""
        return self.directory.environment()

    @cached_property
    def card(self) -> DataCard:
        """What there is to know of the data besides the samples."""
        return self.directory.card()

    @property
    def exit_macs(self) -> list[int]:
        """MACs of leaving at each exit."""
        macs: list[int] = self.environment()["network"]["exit_macs"]
        return macs

    def dataset(self) -> Dataset:
        """Load the raw data, and make sure that it is what the run was started with."""
        dataset = self.experiment.load_data()
        if dataset.checksum() != self.card.sha256:
            name = self.experiment.dataset
            raise InputError(f"data set {name!r} is not the one that run {str(self.path)!r} was started with")
        return dataset

    # Numbers

    def records(self) -> list[RoundRecord]:
        """Give what each round moved and cost."""
        return self.directory.rounds()

    def evaluations(self, answers: Answer | None = None) -> list[RoundAccuracy]:
        """Give the evaluated rounds, in order; by default with the answers that count in the run."""
        return self.directory.evaluations(answers=answers)

    def summary(self, answers: Answer | None = None) -> Summary:
        """Give the `last`, `last5` and `best` accuracy."""
        return summarise(self.evaluations(answers), self.experiment.algorithm().tuned_at_the_end)

    def rounds(self) -> DataFrame:
        """Give what each round moved and cost, a row per round."""
        from pandas import DataFrame

        return DataFrame([asdict(record) for record in self.records()])

    def metrics(self) -> DataFrame:
        """Give a row per evaluated round, client and exit."""
        from pandas import concat

        return concat([read_table(path).to_pandas() for path in self.directory.metric_files()], ignore_index=True)

    def clients(self) -> DataFrame:
        """Give a row per client: how many samples it has, and its accuracy at each exit in the last evaluation."""
        metrics = self.metrics()
        last = metrics[metrics["round"] == metrics["round"].max()]
        table = last.pivot_table(index="client", columns="exit", values="accuracy")
        table.columns = [f"exit {number}" for number in table.columns]
        table.insert(0, "accuracy", table.mean(axis=1))
        partition = open_partition(self.directory.partition)
        for name in ("test", "calibration", "train"):
            table.insert(0, name, partition.sizes(name)[table.index])
        table.insert(3, "trained", last.groupby("client")["trained"].first())
        return table.reset_index()

    def state_bytes(self) -> tuple[float | None, int]:
        """Give what one client keeps (mean over those with a state) and what the server keeps, in bytes.

        What clients keep is not known here where their states stay on devices.
        """
        checkpoint = self.directory.checkpoints.read()
        clients = ClientStore(self.directory.client_states, checkpoint.client_versions)
        kept = ClientStore(self.directory.server_states, checkpoint.kept_versions)
        sizes = [clients.nbytes(client) for client in clients.known() if clients.here(client)]
        server = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
        server += sum(kept.nbytes(client) for client in kept.known())
        mean = sum(sizes) / len(sizes) if sizes else None
        return (mean if clients.versions else 0.0), server

    def trace(self, of: TraceOf, round: int | None = None) -> ExitTrace | None:
        """Read what every exit said of every sample, in a round or the last time; nothing where that was not kept."""
        path = self.directory.latest_trace(of) if round is None else self.directory.trace(of, round)
        return None if path is None or not path.is_file() else ExitTrace.read(path)

    def notes(self, round: int) -> Mapping[str, Tensor]:
        """Give the small arrays that the method noted in a round, such as X-FED's teacher weights."""
        return self.directory.read_notes(round)

    # Models

    def network(self) -> EarlyExitNetwork:
        """Build the run's network; its numbers are to be filled in."""
        return self.experiment.network(self.card.input_shape, len(self.card.classes))

    def model(self, client: int) -> EarlyExitNetwork:
        """Load a client's final personal network, ready to answer."""
        tensors = {**self.directory.shared_tensors(client), **self.own_tensors(client)}
        network = self.network()
        layout = Layout.of(network)
        expected = {entry.name: entry.shape for entry in layout.entries + layout.statistics}
        if {name: tensor.shape for name, tensor in tensors.items()} != expected:
            raise InputError(
                f"the final model of client {client} in run {str(self.path)!r} is damaged: "
                "it does not hold the tensors of the run's network"
            )
        network.load_state_dict(tensors, strict=False)  # buffers that are no numbers of the model stay as built
        return network.eval()

    def own_tensors(self, client: int) -> dict[str, Tensor]:
        """Read what of the final model is the client's own, by `state_dict` name."""
        return self.directory.own_tensors(client)

    def shared_file(self, client: int) -> str:
        """Name the file with what the client's final model shares with others; empty where it shares nothing."""
        return self.directory.shared_file(client)


def open_run(path: str | Path, data_dir: Path | None = None) -> Run:
    """Open a run directory; `data_dir` says where the raw data is now, for what needs it."""
    directory = RunDirectory.open(Path(path))
    try:
        values = yaml.safe_load(directory.settings())
        values["place"]["plugin"] = directory.plugin_files()
        values["place"]["data_dir"] = data_dir or values["place"]["data_dir"]
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise InputError(f"{str(directory.settings_file)!r} is damaged: {' '.join(str(error).split())}") from None
    return Run(directory, Experiment.from_mapping(values))
