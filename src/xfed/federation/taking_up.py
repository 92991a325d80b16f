"""A run taken up where it stands, for simulations and for nodes alike."""

from __future__ import annotations

from dataclasses import dataclass

from xfed.experiment import Experiment
from xfed.federation.loop import Federation, Patience, restore
from xfed.federation.plan import Plan
from xfed.federation.watching import Watchers
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.engine import Engine
from xfed.protocol.server import Server
from xfed.runs.directory import RunDirectory
from xfed.runs.rewinding import rewind
from xfed.runs.store import ClientStore
from xfed.training.trainer import Trainer


@dataclass(frozen=True)
class Standing:
    """Where a run stands: its server, and the states that clients and server keep for each client."""

    experiment: Experiment
    directory: RunDirectory
    server: Server
    states: ClientStore
    kept: ClientStore

    def federation(self, engine: Engine, plan: Plan, watchers: Watchers) -> Federation:
        """Assemble what does the rounds that are left."""
        training, evaluation = self.experiment.training, self.experiment.evaluation
        return Federation(
            self.experiment.algorithm(),
            self.server,
            self.states,
            self.kept,
            engine,
            plan,
            self.directory,
            Patience(training.on_failure, training.min_replies or 1),
            evaluation.traces,
            self.experiment.answering(),
            evaluation.metrics,
            watchers,
        )


def take_up(
    experiment: Experiment, directory: RunDirectory, trainer: Trainer, clients: int, from_round: int | None = None
) -> Standing:
    """Go back to a checkpoint, the last one unless another is asked for, or to the beginning where there is none."""
    initial = directory.initial()
    checkpoint = directory.checkpoints.read(from_round) if directory.checkpoints.rounds() else None
    states = ClientStore(directory.client_states, checkpoint.client_versions if checkpoint else None)
    kept = ClientStore(directory.server_states, checkpoint.kept_versions if checkpoint else None)
    subnetworks = Subnetworks(trainer.network, trainer.layout)
    server = Server(subnetworks, initial, initial.clone(), {}, kept, experiment.seed, clients)
    if checkpoint:
        restore(server, checkpoint)
    rewind(directory, server.round)
    return Standing(experiment, directory, server, states, kept)
