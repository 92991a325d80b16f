"""From a description to the pieces of a run: who holds what, the network, and where clients run."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import torch

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.data.dealing.partitioning import make_partition
from xfed.engines.processes import ProcessEngine
from xfed.engines.serial import SerialEngine
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.federation.host import Engine, Host
from xfed.federation.store import ClientStore
from xfed.kernels.choice import STANDARD, Kernels, choose
from xfed.models.costs import measure
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork, seeded
from xfed.randomness import Purpose, derive
from xfed.training.trainer import Trainer


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


def choose_kernels(experiment: Experiment, dataset: Dataset) -> Kernels:
    """Choose the kernels of a new run, once for all its processes."""
    network = build_network(experiment, dataset.input_shape, len(dataset.classes))
    device = torch.device(experiment.device)
    return choose(experiment.kernels, network, dataset.example(), experiment.batch_size, device)


def build_trainer(experiment: Experiment, dataset: Dataset, kernels: Kernels = STANDARD) -> Trainer:
    """Build the resident network and the loops over it."""
    network = build_network(experiment, dataset.input_shape, len(dataset.classes))
    try:
        costs = measure(network, dataset.example())
    except IndexError:
        raise InputError(
            f"data set {dataset.name!r} has token ids up to {int(dataset.inputs.max())}, which model "
            f"{experiment.model!r} does not know; set {experiment.model}.vocabulary higher"
        ) from None
    kernels.apply(network)
    return Trainer(network, Layout.of(network), costs, torch.device(experiment.device), experiment.batch_size)


def build_host(
    experiment: Experiment, states: Path, partition: Partition, dataset: Dataset, kernels: Kernels = STANDARD
) -> Host:
    """Build what client work needs, in whatever process it happens."""
    experiment.load_plugins()
    trainer = build_trainer(experiment, dataset, kernels)
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


def build_engine(
    experiment: Experiment, states: Path, partition: Partition, dataset: Dataset, kernels: Kernels = STANDARD
) -> Engine:
    """Build where clients run."""
    if experiment.engine == "serial":
        return SerialEngine(build_host(experiment, states, partition, dataset, kernels))
    builders = [
        partial(build_host, experiment.model_copy(update={"device": device}), states, partition, kernels=kernels)
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


def refuse_what_workers_cannot_import(experiment: Experiment) -> None:
    """Refuse components that exist only in the running script."""
    if experiment.engine == "serial":
        return
    for part in (experiment.algorithm(), experiment.dataset_source(), experiment.model_source()):
        if type(part).__module__ == "__main__":
            raise InputError(
                f"{part.name!r} is defined in the running script, which worker processes do not import; "
                "put it into a file and give that as plugin, or use engine 'serial'"
            )
