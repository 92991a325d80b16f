"""A node's own result as a run directory of one client: everything after training then works on it, on the node.

It holds the shared parts that the server sent for the final evaluation, the node's own exits, and what every exit says
of the node's calibration and test samples. None of it leaves the node.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from xfed.data.dealing.partition import Partition, Split
from xfed.environment import describe_machine
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.flower.node import Node, final_task
from xfed.kernels.choice import STANDARD
from xfed.protocol.words import Failed
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run
from xfed.threads import single_thread


def own_run(node: Node, federation: str | None = None) -> tuple[Run, int]:
    """Write the node's run directory of a federation, by default the latest; give it, and the client's number in it."""
    federation = federation or next(reversed(node.federations()), None)
    if federation is None or federation not in node.federations():
        known = ", ".join(node.federations()) or "none"
        raise InputError(f"{str(node.folder)!r} took no part in federation {federation!r}; it has: {known}")
    task = replace(final_task(node, federation), traces=True, model=True)
    briefing = node.briefing(federation)
    with single_thread():
        host = node.host(federation)
        state = node.states(federation).read(task.client, task.state)
        [found] = host.evaluate([task], {task.client: state})
    if isinstance(found, Failed):
        raise InputError(f"{str(node.folder)!r} has no model to use: it {found.reason}")
    assert found.own is not None, "the model was asked for"
    settings = {"dataset": "federation", "partition_by": "natural", "engine": "serial"}
    experiment = Experiment.from_mapping({**briefing.recipe, **settings, "clients": briefing.population})
    directory = RunDirectory(node.home(federation) / "run")
    shutil.rmtree(directory.root, ignore_errors=True)
    fingerprint = experiment.fingerprint(host.card.sha256)
    environment = describe_machine(fingerprint, host.trainer.costs, STANDARD)
    majority = node.introduce(federation).majority
    environment["majority_baseline"] = {"mean": majority, "std": 0.0}
    partition = _alone(node.samples[1], task.client, briefing.population)
    directory.create(experiment.to_yaml(), environment, host.card, host.initial, partition, briefing.plugins)
    directory.write_evaluation(task.round, [found], {task.client}, 1, experiment.answering())
    layout = host.trainer.layout
    shared = {name: task.message.tensors[name] for name in found.shared}
    directory.write_model(task.client, layout.named(shared), layout.named(found.own.tensors))
    directory.finish({"finished": datetime.now(UTC).isoformat(timespec="seconds")})
    return Run(directory, experiment), task.client


def _alone(split: Split, client: int, population: int) -> Partition:
    """Place a node's samples among clients of which nothing is known here."""
    nothing = Split(*(np.empty(0, dtype=np.int64),) * 3)
    return Partition.of(split if number == client else nothing for number in range(population))
