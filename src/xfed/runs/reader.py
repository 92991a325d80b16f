"""A run on disk, opened: everything after training asks here. No engine, no raw data, no re-seeding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition, open_partition
from xfed.errors import InputError
from xfed.evaluation.summary import RoundAccuracy, Summary, summarise
from xfed.evaluation.traces import ExitTrace
from xfed.experiment import Experiment
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork
from xfed.runs.directory import RunDirectory, TraceOf
from xfed.runs.index import Change
from xfed.runs.lock import holder, in_words
from xfed.runs.records import RoundRecord, read_table, read_weights
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
            raise InputError(f"run {str(self.path)!r} is not finished; {self.going_on()}")

    def going_on(self) -> str:
        """Say of a run that is not finished who works on it, or how to continue it."""
        working = holder(self.path)
        return f"'xfed resume {self.path}' continues it" if working is None else f"{in_words(working)} works on it"

    def changes(self) -> tuple[Change, ...]:
        """Give what the run was continued with otherwise than it was started with: more rounds, a mended plug-in."""
        return self.directory.changes()

    def environment(self) -> dict[str, Any]:
        """Give versions, checksums, the majority-class baseline and the network's costs."""
        return self.directory.environment()

    @cached_property
    def card(self) -> DataCard:
        """What there is to know of the data besides the samples."""
        return self.directory.card()

    def partition(self) -> Partition:
        """Tell who holds which samples, as they were dealt out."""
        return open_partition(self.directory.checked(self.directory.partition))

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
        """Give a row per evaluated round, client and exit, with a column for each metric of the settings."""
        from pandas import concat

        return concat([read_table(path).to_pandas() for path in self.directory.metric_files()], ignore_index=True)

    def clients(self) -> DataFrame:
        """Give a row per client: its samples, and of the last evaluation its accuracy and metrics by exit."""
        metrics = self.metrics()
        last = metrics[metrics["round"] == metrics["round"].max()]
        table = last.pivot_table(index="client", columns="exit", values="accuracy")
        table.columns = [f"exit {number}" for number in table.columns]
        table.insert(0, "accuracy", table.mean(axis=1))
        for own in self.experiment.evaluation.metrics:
            for number, values in last.pivot_table(index="client", columns="exit", values=own).items():
                table[f"{own}, exit {number}"] = values
        partition = self.partition()
        for name in ("test", "calibration", "train"):
            table.insert(0, name, partition.sizes(name)[table.index])
        table.insert(3, "trained", last.groupby("client")["trained"].first())
        return table.reset_index()

    def state_bytes(self) -> tuple[float | None, int | None]:
        """Give what one client keeps (mean over those with a state) and what the server keeps, in bytes.

        What clients keep is not known here where their states stay on devices; neither is known without a whole
        newest checkpoint, which results do not need otherwise.
        """
        rounds = self.directory.checkpoints.rounds()
        try:
            checkpoint = self.directory.checkpoints.read(rounds[-1] if rounds else None)
        except InputError:
            return None, None
        clients = ClientStore(self.directory.client_states, checkpoint.client_versions)
        kept = ClientStore(self.directory.server_states, checkpoint.kept_versions)
        sizes = []
        for client, version in clients.versions.items():
            if clients.here(client):
                sizes.append(clients.nbytes(client))
            else:
                self.directory.checked(clients.path(client, version))
        server = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
        server += sum(kept.nbytes(client) for client in kept.known())
        mean = sum(sizes) / len(sizes) if sizes else None
        return (mean if clients.versions else 0.0), server

    def trace(self, of: TraceOf, round: int | None = None) -> ExitTrace | None:
        """Read what every exit said of every sample, in a round or the last time; nothing where that was not kept."""
        path = self.directory.latest_trace(of) if round is None else self.directory.trace(of, round)
        if path is None:
            return None
        self.directory.checked(path)
        return ExitTrace.read(path) if path.is_file() else None

    def weights(self, of: TraceOf) -> dict[int, float]:
        """Tell how many clients each one in the last trace stands for: more than one where a sample was evaluated."""
        path = self.directory.latest_trace(of)
        if path is None:
            return {}
        round = int(path.stem.removeprefix(f"{of}-"))
        return read_weights(self.directory.checked(self.directory.metric_file(round)))

    def held_out(self) -> float | None:
        """Give the accuracy on calibration samples, averaged over exits and then over the clients that have any.

        Settings chosen by it are not chosen by the test samples that the run is judged on.
        """
        trace = self.trace("calibration")
        if trace is None or not len(trace):
            return None
        answer, weights = self.experiment.answering(), self.weights("calibration")
        found = {client: float(own.right(answer).mean()) for client, own in trace.by_client().items()}
        return sum(weights[client] * accuracy for client, accuracy in found.items()) / sum(weights[c] for c in found)

    def notes(self, round: int) -> Mapping[str, Tensor]:
        """Give the small arrays that the method noted in a round, such as X-FED's teacher weights."""
        return self.directory.read_notes(round)

    # Models

    def network(self) -> EarlyExitNetwork:
        """Build the run's network; its numbers are to be filled in."""
        return self.experiment.network(self.card.input_shape, len(self.card.classes))

    def model(self, client: int) -> EarlyExitNetwork:
        """Load a client's final personal network, ready to answer."""
        tensors = self.tensors(client)
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

    def check_model(self, client: int) -> None:
        """Make sure that the files of a client's final model are what the run wrote."""
        self.directory.shared_tensors(client)
        self.directory.own_tensors(client)

    def tensors(self, client: int) -> dict[str, Tensor]:
        """Read all numbers of a client's final model, by `state_dict` name."""
        return {**self.directory.shared_tensors(client), **self.own_tensors(client)}

    def own_tensors(self, client: int) -> dict[str, Tensor]:
        """Read what of the final model is the client's own, by `state_dict` name."""
        return self.directory.own_tensors(client)

    def shared_file(self, client: int) -> str:
        """Name the file with what the client's final model shares with others; empty where it shares nothing."""
        return self.directory.shared_file(client)


def open_run(path: str | Path, data_dir: Path | None = None, plugins: Sequence[Path] | None = None) -> Run:
    """Open a run directory; `data_dir` says where the raw data is now, `plugins` what stands in for the run's own."""
    directory = RunDirectory.open(Path(path))
    if directory.index.get() is None and directory.environment().get("indexed"):
        raise InputError(f"{str(directory.index.file)!r} is missing; 'xfed check {path}' says what can be done")
    values = directory.settings()
    values["place"]["plugin"] = directory.plugin_files() if plugins is None else list(plugins)
    values["place"]["data_dir"] = data_dir or values["place"].get("data_dir")
    return Run(directory, Experiment.from_mapping(values))
