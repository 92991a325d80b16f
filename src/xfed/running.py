"""Carrying a run out, on disk from its first moment, and coming back to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors
import torch
import yaml
from threadpoolctl import threadpool_limits
from torch import Tensor

from xfed.assembly import (
    build_engine,
    build_network,
    build_trainer,
    choose_kernels,
    partition_of,
    refuse_what_workers_cannot_import,
)
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.data.dealing.partition_file import read_partition
from xfed.environment import describe_environment
from xfed.errors import InputError, unknown
from xfed.evaluation.summary import RoundAccuracy, Summary, summarise
from xfed.experiment import ELSEWHERE, Experiment, code_version
from xfed.federation.host import client_model
from xfed.federation.loop import Federation, Watcher, restore
from xfed.federation.plan import Plan
from xfed.federation.progress import ProgressBar
from xfed.federation.run_directory import RoundRecord, RunDirectory
from xfed.federation.store import ClientStore
from xfed.files import read_tensors
from xfed.kernels.choice import Kernels
from xfed.models.network import EarlyExitNetwork
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.server import Server
from xfed.training.trainer import Trainer


class Interrupted(KeyboardInterrupt):
    """A run was stopped by hand; `path` is where it can be continued from."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not."""

    directory: RunDirectory
    experiment: Experiment

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

    def dataset(self) -> Dataset:
        """Load the data, and make sure that it is what the run was started with."""
        dataset = self.experiment.dataset_source().load()
        if dataset.checksum() != self.environment()["data_sha256"]:
            name = self.experiment.dataset
            raise InputError(f"data set {name!r} is not the one that run {str(self.path)!r} was started with")
        return dataset

    def environment(self) -> dict[str, Any]:
        """Give versions, checksums, the majority-class baseline and the network's costs."""
        return self.directory.environment()

    def evaluations(self) -> list[RoundAccuracy]:
        """Give the evaluated rounds, in order."""
        return self.directory.evaluations()

    def state_bytes(self) -> tuple[float, int]:
        """Give what one client keeps (mean over those with a state) and what the server keeps, in bytes."""
        checkpoint = self.directory.checkpoints.read()
        clients = ClientStore(self.directory.client_states, checkpoint.client_versions)
        kept = ClientStore(self.directory.server_states, checkpoint.kept_versions)
        sizes = [clients.nbytes(client) for client in clients.known()]
        server = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
        server += sum(kept.nbytes(client) for client in kept.known())
        return (sum(sizes) / len(sizes) if sizes else 0.0), server

    def rounds(self) -> list[RoundRecord]:
        """Give what each round moved and cost."""
        return self.directory.rounds()

    def summary(self) -> Summary:
        """Give the `last`, `last5` and `best` accuracy."""
        return summarise(self.evaluations(), self.experiment.algorithm().tuned_at_the_end)

    def model(self, client: int) -> EarlyExitNetwork:
        """Load a client's final personal network, ready to answer."""
        tensors = self.own_tensors(client)
        shared = self.shared_file(client)
        if shared:
            tensors |= read_tensors(self.directory.models / shared)
        network = build_network(self.experiment, *self._shape())
        network.load_state_dict(tensors, strict=False)
        return network.eval()

    def own_tensors(self, client: int) -> dict[str, Tensor]:
        """Read what of the final model is the client's own, by `state_dict` name."""
        return read_tensors(self._client_model(client))

    def shared_file(self, client: int) -> str:
        """Name the file with what the client's final model shares with others; empty where it shares nothing."""
        with safetensors.safe_open(self._client_model(client), framework="pt") as file:
            name: str = file.metadata()["shared"]
            return name

    def _client_model(self, client: int) -> Path:
        path = client_model(self.directory.models, client)
        if not path.is_file():
            raise InputError(
                f"run {str(self.path)!r} has no final model of client {client}; "
                "it has those of the clients that were evaluated at its end"
            )
        return path

    def _shape(self) -> tuple[tuple[int, ...], int]:
        network = self.environment()["network"]
        return tuple(network["input_shape"]), network["classes"]


def open_run(path: Path) -> Run:
    """Open a run directory."""
    directory = RunDirectory.open(path)
    values = yaml.safe_load(directory.settings())
    values["plugin"] = sorted(directory.plugins.glob("*.py")) if directory.plugins.is_dir() else []
    return Run(directory, Experiment.from_mapping(values))


def run(experiment: Experiment, progress: bool = True) -> Run:
    """Carry out an experiment in a new run directory."""
    directory = RunDirectory(experiment.out or new_run_path(experiment))
    directory.refuse_existing()
    refuse_what_workers_cannot_import(experiment)
    dataset = experiment.dataset_source().load()
    partition = partition_of(experiment, dataset)
    experiment = experiment.model_copy(update={"clients": len(partition)})
    with single_thread():
        kernels = choose_kernels(experiment, dataset)
    trainer = build_trainer(experiment, dataset)
    experiment.algorithm().check(Subnetworks(trainer.network, trainer.layout), len(partition))
    for number, path in enumerate(experiment.plugin):
        directory.plugins.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, directory.plugins / f"{number}-{path.name}")
    environment = describe_environment(experiment, dataset, partition, trainer.costs) | {"kernels": kernels.note()}
    partition = directory.create(experiment.to_yaml(), environment, partition)
    return _carry_out(Run(directory, experiment), dataset, partition, trainer, kernels, progress)


def resume(path: Path, progress: bool = True, from_round: int | None = None, **elsewhere: Any) -> Run:
    """Continue a run after any interruption; a finished run is left as it is.

    `elsewhere` may change where it runs (engine, workers), never what it computes.
    """
    for name in elsewhere:
        if name not in ELSEWHERE:
            raise unknown("setting to resume with", name, ELSEWHERE)
    opened = open_run(path)
    if opened.finished:
        return opened
    changed = Experiment.from_mapping({**opened.experiment.model_dump(), **elsewhere})
    dataset = opened.dataset()
    noted = opened.environment()
    if code_version() != noted["code_version"]:
        raise InputError(
            f"run {str(path)!r} was started by another version of the code ({noted['xfed']}, {noted['code_version']}); "
            "only the same version continues it bit for bit"
        )
    kernels = Kernels.of_note(noted["kernels"])
    kernels.require()
    partition = read_partition(opened.directory.partition, len(dataset))
    trainer = build_trainer(changed, dataset)
    return _carry_out(Run(opened.directory, changed), dataset, partition, trainer, kernels, progress, from_round)


def _carry_out(
    run: Run,
    dataset: Dataset,
    partition: Partition,
    trainer: Trainer,
    kernels: Kernels,
    progress: bool,
    from_round: int | None = None,
) -> Run:
    experiment, directory = run.experiment, run.directory
    checkpoint = None
    if directory.checkpoints.rounds():
        checkpoint = directory.checkpoints.read(from_round)
    initial = trainer.resident.to(torch.device("cpu"))
    states = ClientStore(directory.client_states, checkpoint.client_versions if checkpoint else None)
    kept = ClientStore(directory.server_states, checkpoint.kept_versions if checkpoint else None)
    subnetworks = Subnetworks(trainer.network, trainer.layout)
    server = Server(subnetworks, initial, initial.clone(), {}, kept, experiment.seed, experiment.clients)
    if checkpoint:
        restore(server, checkpoint)
    plan = Plan(
        rounds=experiment.rounds,
        cohort_size=experiment.cohort_size,
        eval_every=experiment.eval_every,
        checkpoint_every=experiment.checkpoint_every,
        sizes=partition.sizes("train").tolist(),
        test_sizes=partition.sizes("test").tolist(),
        seed=experiment.seed,
        eval_clients=experiment.eval_clients,
    )
    earlier = directory.evaluations(until=server.round)
    with single_thread(), _watching(progress, experiment, server.round, earlier) as watchers:
        engine = build_engine(experiment, directory.client_states, partition, dataset, kernels)
        try:
            Federation(experiment.algorithm(), server, states, kept, engine, plan, directory, watchers).run()
        except KeyboardInterrupt:
            raise Interrupted(directory.root) from None
        finally:
            engine.close()
    directory.finish({"finished": datetime.now(UTC).isoformat(timespec="seconds")})
    return run


@contextmanager
def _watching(
    progress: bool, experiment: Experiment, done: int, earlier: Sequence[RoundAccuracy]
) -> Iterator[Sequence[Watcher]]:
    if not progress:
        yield ()
        return
    with ProgressBar(f"{experiment.method} on {experiment.dataset}", experiment.rounds, done, earlier) as bar:
        yield (bar,)


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread, as every worker does: sums then have the same bits everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def new_run_path(experiment: Experiment) -> Path:
    """Name a run directory that does not exist yet."""
    base = Path("runs") / f"{experiment.method}-{experiment.dataset}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
