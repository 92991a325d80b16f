"""Carrying a run out, on disk from its first moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb

import torch

from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import SPLITS, Partition
from xfed.data.dealing.partitioning import make_partition
from xfed.environment import describe_environment
from xfed.errors import ClientError, InputError, Interrupted
from xfed.evaluation.metrics import METRICS
from xfed.experiment import Experiment
from xfed.federation.host import build_trainer
from xfed.federation.plan import Plan
from xfed.federation.taking_up import take_up
from xfed.federation.watching import Callback, Watcher, Watchers
from xfed.kernels.choice import Kernels, choose
from xfed.models.layout import ModelState
from xfed.models.subnetwork import Subnetworks
from xfed.progress import Shown, showing
from xfed.protocol.engine import Job
from xfed.protocol.message import Message
from xfed.protocol.words import Briefing
from xfed.runs.amending import plain_name
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run
from xfed.threads import single_thread
from xfed.tracking import require, tracking
from xfed.training.trainer import Trainer


def run(experiment: Experiment, progress: Shown = True, watchers: Sequence[Watcher | Callback] = ()) -> Run:
    """Carry out an experiment in a new run directory.

    `watchers` see it go by: functions that are called with each round's record and, where it was evaluated, its
    accuracy; or objects with more to hear.
    """
    directory = RunDirectory(experiment.place.out or new_run_path(experiment))
    directory.refuse_existing()
    ready = prepare(experiment)
    experiment, dataset, trainer = ready.experiment, ready.dataset, ready.trainer
    environment = describe_environment(experiment, dataset, ready.partition, trainer.costs, ready.kernels)
    plugins, initial = plugin_sources(experiment), trainer.snapshot()
    with directory.alone():
        directory.refuse_existing()  # once more: another process may have started it meanwhile
        partition = directory.create(experiment.to_yaml(), environment, ready.card, initial, ready.partition, plugins)
        return carry_out(Run(directory, experiment), dataset, partition, trainer, progress, watchers)


@dataclass(frozen=True)
class Ready:
    """An experiment whose parts were all built and checked, so that nothing wrong with it shows after the start."""

    experiment: Experiment
    dataset: Dataset
    partition: Partition
    card: DataCard
    kernels: Kernels
    trainer: Trainer


def prepare(experiment: Experiment) -> Ready:
    """Load the data, deal it out, build network and method; refuse what cannot run."""
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
    return Ready(experiment, dataset, partition, card, kernels, trainer)


def plan_of(experiment: Experiment, partition: Partition) -> Plan:
    """Plan when rounds happen, with whom, and who is evaluated."""
    return Plan(
        rounds=experiment.training.rounds,
        cohort_size=experiment.cohort_size,
        eval_every=experiment.evaluation.eval_every,
        checkpoint_every=experiment.place.checkpoint_every,
        sizes=partition.sizes("train").tolist(),
        test_sizes=partition.sizes("test").tolist(),
        seed=experiment.seed,
        eval_clients=experiment.evaluation.eval_clients,
    )


def carry_out(
    run: Run,
    dataset: Dataset,
    partition: Partition,
    trainer: Trainer,
    progress: Shown,
    watchers: Sequence[Watcher | Callback],
    from_round: int | None = None,
) -> Run:
    """Do the rounds that are left, from a checkpoint if there is one, and everything that comes with them."""
    experiment, directory = run.experiment, run.directory
    standing = take_up(experiment, directory, trainer, len(partition), from_round)
    server, place = standing.server, experiment.place
    kernels = Kernels.of_note(directory.environment()["kernels"])
    briefing = brief(experiment, run.card, server.initial, kernels, len(partition))
    earlier = directory.evaluations(until=server.round)
    engine = experiment.engine()
    with (
        _interruptible(directory),
        single_thread(),
        tracking(experiment, directory, server.round) as trackers,
        showing(progress, directory.log_file, experiment, server.round, earlier) as displays,
    ):
        engine.open(Job(briefing, dataset, partition, standing.states, place.workers, place.device))
        try:
            watching = Watchers([*displays, *trackers, *watchers])
            standing.federation(engine, plan_of(experiment, partition), watching).run()
        except InputError:
            raise
        except SystemExit as ended:
            told = ClientError(
                f"the method called sys.exit({ended.code!r}) after round {server.round}; it may only raise"
            )
            _advise(told, run)
            raise told from None
        except Exception as error:
            blamed = _blame(error, run, server.round)
            _advise(blamed or error, run)
            if blamed is None:
                raise
            raise blamed from error
        finally:
            engine.close()
    with _interruptible(directory):
        directory.finish({"finished": datetime.now(UTC).isoformat(timespec="seconds")})
    return run


def _blame(error: Exception, run: Run, round: int) -> ClientError | None:
    """Say which line of a plug-in an error of the server's side came from, where it came from one."""
    files = {str(path): plain_name(path.name) for path in run.experiment.place.plugin}
    lines = [frame for frame in extract_tb(error.__traceback__) if frame.filename in files]
    if isinstance(error, ClientError | OSError) or not lines:
        return None
    where = f"line {lines[-1].lineno}, in {lines[-1].name}"
    what = f"{type(error).__name__}: {error}"
    return ClientError(f"plug-in {files[lines[-1].filename]!r} failed after round {round} ({where}): {what}")


def _advise(error: Exception, run: Run) -> None:
    """Add to an error that stopped a run what the run can be continued with."""
    again, done = f"xfed resume {run.path}", run.directory.checkpoints.rounds()
    kept = f"rounds up to {done[-1]} are kept" if done else "nothing is lost"
    if isinstance(error, ClientError) and error.failure == "diverged":
        training = run.experiment.training
        lower = f"{again} --lr {min(training.lr / 2, type(training).model_fields['lr'].default):g}"
        earlier = f"; with --round {done[0]}, after an earlier round" if len(done) > 1 else ""
        drop = f"; '{again} --on-failure drop' leaves such clients out" if training.on_failure == "stop" else ""
        error.add_note(
            f"{kept}, but going on alike would diverge again: '{lower}' goes on with a lower learning rate{earlier}"
            f"{drop}. The run records that."
        )
    elif isinstance(error, ClientError) and run.experiment.place.plugin:
        mended = " ".join(f"--plugin {plain_name(path.name)}" for path in run.experiment.place.plugin)
        error.add_note(f"{kept}: '{again}' continues the run, and '{again} {mended}' does so with a mended plug-in")
    else:
        error.add_note(f"{kept}: '{again}' continues the run")


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
    parts = (experiment.algorithm(), experiment.dataset_source(), experiment.model_source())
    homes = {part.name: type(part).__module__ for part in parts}
    homes |= {name: METRICS[name].__module__ for name in experiment.evaluation.metrics}
    for name, home in homes.items():
        if home == "__main__":
            raise InputError(
                f"{name!r} is defined in the running script, which worker processes do not import; "
                "put it into a file and give that as plugin, or use engine 'serial'"
            )


@contextmanager
def _interruptible(directory: RunDirectory) -> Iterator[None]:
    """Say of an interrupt where the run can be continued from."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(directory.root) from None


def new_run_path(experiment: Experiment) -> Path:
    """Name a run directory that does not exist yet."""
    base = Path("runs") / f"{experiment.method}-{experiment.dataset}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
