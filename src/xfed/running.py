"""Carrying a run out, on disk from its first moment, and coming back to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import SPLITS, Partition
from xfed.data.dealing.partition_file import read_partition
from xfed.data.dealing.partitioning import make_partition
from xfed.environment import describe_environment
from xfed.errors import InputError, Interrupted, unknown
from xfed.evaluation.summary import RoundAccuracy
from xfed.experiment import Experiment
from xfed.experiment.code import code_digest
from xfed.experiment.sections import Place
from xfed.federation.host import build_trainer
from xfed.federation.loop import Federation, Patience, Watcher, restore
from xfed.federation.plan import Plan
from xfed.federation.progress import ProgressBar
from xfed.kernels.choice import Kernels, choose
from xfed.models.layout import ModelState
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.engine import Job
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.protocol.words import Briefing
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run, open_run
from xfed.runs.store import ClientStore
from xfed.threads import single_thread
from xfed.tracking import require, tracking
from xfed.training.trainer import Trainer

ELSEWHERE = tuple(name for name in Place.model_fields if name not in ("device", "out", "plugin"))
"""Settings that a run may be continued with otherwise: they say where it runs and cannot change its numbers."""


def run(experiment: Experiment, progress: bool = True, watchers: Sequence[Watcher] = ()) -> Run:
    """Carry out an experiment in a new run directory."""
    directory = RunDirectory(experiment.place.out or new_run_path(experiment))
    directory.refuse_existing()
    require(experiment.place.track)
    refuse_what_workers_cannot_import(experiment)
    dataset = experiment.load_data()
    partition = partition_of(experiment, dataset)
    experiment = experiment.changed(clients=len(partition))
    sizes: dict[str, int] = {name: int(partition.sizes(name).sum()) for name in SPLITS}
    card = replace(dataset.card, sizes={"clients": len(partition)} | sizes)
    kernels = choose_kernels(experiment, card)
    trainer = build_trainer(experiment, card, "cpu")
    experiment.algorithm().check(Subnetworks(trainer.network, trainer.layout), len(partition))
    environment = describe_environment(experiment, dataset, partition, trainer.costs, kernels)
    plugins, initial = plugin_sources(experiment), trainer.snapshot()
    partition = directory.create(experiment.to_yaml(), environment, card, initial, partition, plugins)
    return _carry_out(Run(directory, experiment), dataset, partition, trainer, progress, watchers)


def resume(
    path: str | Path,
    progress: bool = True,
    from_round: int | None = None,
    watchers: Sequence[Watcher] = (),
    **elsewhere: Any,
) -> Run:
    """Continue a run after any interruption; a finished run is left as it is.

    `elsewhere` may change where it runs (engine, workers, data_dir), never what it computes.
    """
    for name in elsewhere:
        if name not in ELSEWHERE:
            raise unknown("setting to resume with", name, ELSEWHERE)
    opened = open_run(path)
    if opened.finished:
        return opened
    noted = opened.environment()
    if code_digest() != noted["code"]:
        raise InputError(
            f"run {str(path)!r} was started by another version of the code ({noted['xfed']}, {noted['code']}); "
            "only the same version continues it bit for bit"
        )
    Kernels.of_note(noted["kernels"]).require()
    changed = Run(opened.directory, opened.experiment.changed(**elsewhere))
    require(changed.experiment.place.track)
    dataset = changed.dataset()
    partition = read_partition(opened.directory.partition, len(dataset))
    trainer = build_trainer(changed.experiment, changed.card, "cpu")
    return _carry_out(changed, dataset, partition, trainer, progress, watchers, from_round)


def _carry_out(
    run: Run,
    dataset: Dataset,
    partition: Partition,
    trainer: Trainer,
    progress: bool,
    watchers: Sequence[Watcher],
    from_round: int | None = None,
) -> Run:
    experiment, directory = run.experiment, run.directory
    initial, checkpoint = directory.initial(), None
    if directory.checkpoints.rounds():
        checkpoint = directory.checkpoints.read(from_round)
    states = ClientStore(directory.client_states, checkpoint.client_versions if checkpoint else None)
    kept = ClientStore(directory.server_states, checkpoint.kept_versions if checkpoint else None)
    subnetworks = Subnetworks(trainer.network, trainer.layout)
    server = Server(subnetworks, initial, initial.clone(), {}, kept, experiment.seed, len(partition))
    if checkpoint:
        restore(server, checkpoint)
    plan = Plan(
        rounds=experiment.training.rounds,
        cohort_size=experiment.cohort_size,
        eval_every=experiment.evaluation.eval_every,
        checkpoint_every=experiment.place.checkpoint_every,
        sizes=partition.sizes("train").tolist(),
        test_sizes=partition.sizes("test").tolist(),
        seed=experiment.seed,
        eval_clients=experiment.evaluation.eval_clients,
    )
    training, place = experiment.training, experiment.place
    kernels = Kernels.of_note(directory.environment()["kernels"])
    briefing = brief(experiment, run.card, initial, kernels, len(partition))
    earlier = directory.evaluations(until=server.round)
    engine = experiment.engine()
    with (
        single_thread(),
        tracking(experiment, directory, server.round) as trackers,
        _watching(progress, experiment, server.round, earlier) as bars,
    ):
        engine.open(Job(briefing, dataset, partition, states, place.workers, place.device))
        try:
            Federation(
                experiment.algorithm(),
                server,
                states,
                kept,
                engine,
                plan,
                directory,
                Patience(training.on_failure, training.min_replies or 1),
                experiment.evaluation.traces,
                experiment.answering(),
                [*bars, *trackers, *watchers],
            ).run()
        except KeyboardInterrupt:
            raise Interrupted(directory.root) from None
        finally:
            engine.close()
    directory.finish({"finished": datetime.now(UTC).isoformat(timespec="seconds")})
    return run


def choose_kernels(experiment: Experiment, card: DataCard) -> Kernels:
    """Choose the kernels of a new run, once for all its processes."""
    network = experiment.network(card.input_shape, len(card.classes))
    training, device = experiment.training, torch.device(experiment.place.device)
    with single_thread():
        return choose(training.kernels, network, card.example(), training.batch_size, device)


def brief(experiment: Experiment, card: DataCard, initial: ModelState, kernels: Kernels, population: int) -> Briefing:
    """Put together what client work needs to know, without any path of this machine."""
    numbers = Message({"parameters": initial.parameters, "statistics": initial.statistics})
    return Briefing(
        experiment.recipe(), plugin_sources(experiment), card.to_json(), numbers, kernels.note(), population
    )


def plugin_sources(experiment: Experiment) -> dict[str, str]:
    """Read the plug-ins; numbered, since two folders may hold files of one name."""
    paths = experiment.place.plugin
    return {f"{number}-{path.name}": path.read_text(encoding="utf-8") for number, path in enumerate(paths)}


def partition_of(experiment: Experiment, dataset: Dataset) -> Partition:
    """Deal the samples out; a partition file and natural clients bring their own number of clients."""
    dealing = experiment.dealing
    partition = make_partition(dataset, dealing, experiment.seed)
    if "clients" in dealing.model_fields_set and dealing.clients != len(partition):
        path = dealing.partition
        whose = f"data set {dataset.name!r}" if path is None else f"partition file {str(path)!r}"
        raise InputError(
            f"{whose} has {len(partition)} clients, but clients is {dealing.clients}; "
            "leave clients out or make them agree"
        )
    return partition


def refuse_what_workers_cannot_import(experiment: Experiment) -> None:
    """Refuse components that exist only in the running script."""
    if experiment.engine().imports_script:
        return
    for part in (experiment.algorithm(), experiment.dataset_source(), experiment.model_source()):
        if type(part).__module__ == "__main__":
            raise InputError(
                f"{part.name!r} is defined in the running script, which worker processes do not import; "
                "put it into a file and give that as plugin, or use engine 'serial'"
            )


@contextmanager
def _watching(
    progress: bool, experiment: Experiment, done: int, earlier: Sequence[RoundAccuracy]
) -> Iterator[Sequence[Watcher]]:
    if not progress:
        yield ()
        return
    with ProgressBar(f"{experiment.method} on {experiment.dataset}", experiment.training.rounds, done, earlier) as bar:
        yield (bar,)


def new_run_path(experiment: Experiment) -> Path:
    """Name a run directory that does not exist yet."""
    base = Path("runs") / f"{experiment.method}-{experiment.dataset}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
