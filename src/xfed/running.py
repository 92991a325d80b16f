"""From a description to an assembled federation, a run on disk, and back from there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import torch
import yaml
from threadpoolctl import threadpool_limits

from xfed.data.dataset import Dataset
from xfed.data.partition import Partition
from xfed.data.partition_file import read_partition
from xfed.data.partitioning import make_partition
from xfed.engines.processes import ProcessEngine
from xfed.engines.serial import SerialEngine
from xfed.environment import describe_environment
from xfed.errors import InputError, unknown
from xfed.evaluation.summary import RoundAccuracy, Summary, summarise
from xfed.experiment import ELSEWHERE, Experiment, code_version
from xfed.federation.host import Engine, Host, client_model
from xfed.federation.loop import Federation, Watcher, restore
from xfed.federation.plan import Plan
from xfed.federation.progress import ProgressBar
from xfed.federation.run_directory import RoundRecord, RunDirectory
from xfed.federation.store import ClientStore
from xfed.files import read_tensors
from xfed.models.costs import measure
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork, seeded
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.server import Server
from xfed.randomness import Purpose, derive
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
        path = client_model(self.directory.models, client)
        if not path.is_file():
            raise InputError(
                f"run {str(self.path)!r} has no final model of client {client}; "
                "it has those of the clients that were evaluated at its end"
            )
        tensors = read_tensors(path)
        with safetensors.safe_open(path, framework="pt") as file:
            shared = file.metadata()["shared"]
        if shared:
            tensors |= read_tensors(self.directory.models / shared)
        network = build_network(self.experiment, *self._shape())
        network.load_state_dict(tensors, strict=False)
        return network.eval()

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
    _refuse_what_workers_cannot_import(experiment)
    dataset = experiment.dataset_source().load()
    partition = partition_of(experiment, dataset)
    experiment = experiment.model_copy(update={"clients": len(partition)})
    trainer = build_trainer(experiment, dataset)
    experiment.algorithm().check(Subnetworks(trainer.network, trainer.layout), len(partition))
    for number, path in enumerate(experiment.plugin):
        directory.plugins.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, directory.plugins / f"{number}-{path.name}")
    environment = describe_environment(experiment, dataset, partition, trainer.costs)
    partition = directory.create(experiment.to_yaml(), environment, partition)
    return _carry_out(Run(directory, experiment), dataset, partition, trainer, progress)


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
    dataset = changed.dataset_source().load()
    noted = opened.environment()
    if dataset.checksum() != noted["data_sha256"]:
        raise InputError(f"data set {changed.dataset!r} is not the one that run {str(path)!r} was started with")
    if code_version() != noted["code_version"]:
        raise InputError(
            f"run {str(path)!r} was started by another version of the code ({noted['xfed']}, {noted['code_version']}); "
            "only the same version continues it bit for bit"
        )
    partition = read_partition(opened.directory.partition, len(dataset))
    trainer = build_trainer(changed, dataset)
    return _carry_out(Run(opened.directory, changed), dataset, partition, trainer, progress, from_round)


def partition_of(experiment: Experiment, dataset: Dataset) -> Partition:
    """Deal the samples out; a partition file and natural clients bring their own number of clients."""
    partition = make_partition(dataset, experiment.partition_plan())
    if "clients" in experiment.model_fields_set and experiment.clients != len(partition):
        path = experiment.partition
        whose = f"data set {dataset.name!r}" if path is None else f"partition file {str(path)!r}"
        raise InputError(
            f"{whose} has {len(partition)} clients, but clients is {experiment.clients}; "
            "leave clients out or make them agree"
        )
    return partition


def build_network(experiment: Experiment, input_shape: tuple[int, ...], classes: int) -> EarlyExitNetwork:
    """Build the network that server and clients start from."""
    weights = derive(experiment.seed, Purpose.INITIAL_WEIGHTS)
    return seeded(experiment.model_source(), input_shape, classes, experiment.exits, weights)


def build_trainer(experiment: Experiment, dataset: Dataset) -> Trainer:
    """Build the resident network and the loops over it."""
    network = build_network(experiment, dataset.input_shape, len(dataset.classes))
    try:
        costs = measure(network, dataset.example())
    except IndexError:
        raise InputError(
            f"data set {dataset.name!r} has token ids up to {int(dataset.inputs.max())}, which model "
            f"{experiment.model!r} does not know; set {experiment.model}.vocabulary higher"
        ) from None
    return Trainer(network, Layout.of(network), costs, torch.device(experiment.device), experiment.batch_size)


def build_host(experiment: Experiment, states: Path, partition: Partition, dataset: Dataset) -> Host:
    """Build what client work needs, in whatever process it happens."""
    experiment.load_plugins()
    trainer = build_trainer(experiment, dataset)
    return Host(
        algorithm=experiment.algorithm(),
        trainer=trainer,
        initial=trainer.snapshot().to(torch.device("cpu")),
        dataset=dataset.to(trainer.device),
        partition=partition,
        schedule=experiment.schedule(),
        states=ClientStore(states),
        seed=experiment.seed,
    )


def build_engine(experiment: Experiment, states: Path, partition: Partition, dataset: Dataset) -> Engine:
    """Build where clients run."""
    if experiment.engine == "serial":
        return SerialEngine(build_host(experiment, states, partition, dataset))
    builders = [
        partial(build_host, experiment.model_copy(update={"device": device}), states, partition)
        for device in worker_devices(experiment)
    ]
    return ProcessEngine(builders, dataset)


def worker_devices(experiment: Experiment) -> list[str]:
    """Give each worker's device: one worker per core; with `cuda`, one per GPU; with any other device, one on it."""
    device = torch.device(experiment.device)
    if device.type == "cpu":
        return [experiment.device] * (experiment.workers or os.cpu_count() or 1)
    if device.type == "cuda" and device.index is None:
        count = torch.cuda.device_count()
        return [f"cuda:{number % count}" for number in range(experiment.workers or count)]
    return [experiment.device] * (experiment.workers or 1)


def _refuse_what_workers_cannot_import(experiment: Experiment) -> None:
    if experiment.engine == "serial":
        return
    for part in (experiment.algorithm(), experiment.dataset_source(), experiment.model_source()):
        if type(part).__module__ == "__main__":
            raise InputError(
                f"{part.name!r} is defined in the running script, which worker processes do not import; "
                "put it into a file and give that as plugin, or use engine 'serial'"
            )


def _carry_out(
    run: Run,
    dataset: Dataset,
    partition: Partition,
    trainer: Trainer,
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
        engine = build_engine(experiment, directory.client_states, partition, dataset)
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
