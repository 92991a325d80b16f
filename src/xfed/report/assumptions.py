"""What X-FED assumes, measured in a finished run: a simulation sees what no server would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xfed.algorithms.common.matching import cosines, match_teachers
from xfed.errors import InputError
from xfed.models.layout import Layout
from xfed.models.parts import Parts
from xfed.runs.reader import Run
from xfed.runs.store import ClientStore

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ShallowExit:
    """A shallow exit against the last one, over the clients of the last round.

    `correlation` is between the cosines of all pairs of clients' updates, of this exit and of the last;
    `difference` their mean absolute difference; `weights` the mean over clients of half the L1 distance between the
    teacher weights that each would give (total variation: 0 alike, 1 disjoint).
    """

    exit: int
    correlation: float
    difference: float
    weights: float


def shallow_exits(run: Run) -> list[ShallowExit]:
    """Compare exits by what the last round changed of them, from the last two checkpoints."""
    clients, updates = _last_updates(run)
    mu = run.experiment.settings["method"]["mu"]
    similar = [cosines(each, each, clients, clients) for each in updates]
    pairs = np.triu_indices(len(clients), 1)
    last = similar[-1][pairs]
    found = []
    for j, matrix in enumerate(similar[:-1]):
        own = matrix[pairs]
        varies = len(own) > 1 and own.std() > 0 and last.std() > 0
        apart = np.abs(match_teachers(matrix, mu) - match_teachers(similar[-1], mu)).sum(axis=1) / 2
        found.append(
            ShallowExit(
                j,
                float(np.corrcoef(own, last)[0, 1]) if varies else float("nan"),
                float(np.abs(own - last).mean()),
                float(apart.mean()),
            )
        )
    return found


def _last_updates(run: Run) -> tuple[list[int], list[Matrix]]:
    """Give the last round's clients, and for each exit what the round changed of theirs (clients × numbers)."""
    run.require_finished()
    directory, rounds = run.directory, run.experiment.training.rounds
    there = directory.checkpoints.rounds()
    if there[-2:] != [rounds - 1, rounds]:
        raise InputError(f"run {str(run.path)!r} did not keep a checkpoint of every round; checkpoint_every must be 1")
    before, after = (directory.checkpoints.read(each) for each in there[-2:])
    layout = Layout.of(run.network())
    key, initial = Parts.SHALLOW_EXITS.key, layout.gather(directory.initial(), Parts.SHALLOW_EXITS)
    clients = [client for client, version in after.client_versions.items() if version == rounds]
    earlier, later = (ClientStore(directory.client_states, each.client_versions) for each in (before, after))
    changes = torch.stack([later.get(each)[key] - earlier.get(each).get(key, initial) for each in clients])
    kept = ClientStore(directory.server_states, after.kept_versions)
    last = torch.stack([kept.get(client)["update"] for client in clients])
    shallow = changes.split([layout.exit_count(j) for j in range(layout.exits - 1)], dim=1)
    return clients, [np.asarray(each.double().numpy()) for each in (*shallow, last)]


def teacher_weights(notes: Mapping[str, Tensor]) -> tuple[Matrix, NDArray[np.int64], NDArray[np.int64]]:
    """Give a round's teacher weights (students × teachers) and who they are, both in the order of their numbers."""
    students, teachers = notes["teacher_students"].numpy(), notes["teachers"].numpy()
    rows, columns = np.argsort(students), np.argsort(teachers)
    return notes["teacher_weights"].numpy()[rows][:, columns], students[rows], teachers[columns]


@dataclass(frozen=True)
class Heterogeneity:
    """δ_i of the convergence theorem in one round: Σ_{j≠i} k_ij ‖h_jm − h_im‖², mean and largest over clients.

    The theorem divides by the learning rate, which `rate` is.
    """

    round: int
    mean: float
    largest: float
    rate: float


def heterogeneity(run: Run) -> list[Heterogeneity]:
    """Follow δ_i over the rounds, from the method's notes; nothing where teachers are not the participants."""
    schedule = run.experiment.training.schedule()
    found = []
    for round in range(1, run.experiment.training.rounds + 1):
        notes = run.notes(round)
        if "distances" not in notes or "teacher_weights" not in notes:
            continue
        weights, distances = notes["teacher_weights"].numpy(), notes["distances"].numpy()
        alike = notes["teacher_students"].tolist() == notes["teachers"].tolist()
        if alike and weights.shape == distances.shape:
            each = (weights * distances).sum(axis=1)
            found.append(Heterogeneity(round, float(each.mean()), float(each.max()), schedule.rate_in(round)))
    return found
