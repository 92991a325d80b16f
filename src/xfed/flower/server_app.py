"""The ServerApp: the one round loop over Flower's Grid, in a run directory like any other.

The app's configuration holds the settings of `xfed run`, and those of the federation under `federation.`. A run
directory that is there already is continued from its last checkpoint: that is how a federation goes on after anything.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from pydantic import Field, PositiveFloat, PositiveInt

from xfed.components import BaseSettings, validate
from xfed.data.card import DataCard
from xfed.environment import describe_machine
from xfed.errors import InputError
from xfed.evaluation.summary import RoundAccuracy
from xfed.experiment import Experiment
from xfed.experiment.code import code_digest
from xfed.federation.host import build_trainer
from xfed.federation.taking_up import take_up
from xfed.federation.watching import Watcher, Watchers
from xfed.files import write_json
from xfed.flower.engine import FlowerEngine, reply_limit
from xfed.flower.intake import weighed
from xfed.flower.node import Introduction
from xfed.flower.plan import LivePlan
from xfed.flower.roster import Roster, common_card
from xfed.flower.wire import PLAIN_LIMIT
from xfed.kernels.choice import STANDARD
from xfed.models.subnetwork import Subnetworks
from xfed.progress import LogFile, last_line, round_line
from xfed.protocol.words import Briefing
from xfed.running import brief
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run, open_run
from xfed.runs.records import RoundRecord
from xfed.threads import single_thread

app = ServerApp()
PREFIX = "federation."
LOOK_SECONDS = 1.0


class FederationSettings(BaseSettings):
    """What a federation needs besides an experiment, as `federation.…` in the app's configuration."""

    out: Path = Field(description="run directory on the server; one that is there is continued")
    timeout: PositiveFloat = Field(600.0, description="seconds that a round waits for replies")
    min_nodes: PositiveInt = Field(2, description="nodes that must be connected before a round starts")
    wait: PositiveFloat = Field(600.0, description="seconds to wait for so many nodes")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Conduct a federation as the app's configuration says."""
    try:
        finished = conduct(grid, context.run_config)
    except InputError as error:
        # Flower notes only exceptions as a run's end: after a SystemExit the run counts as running for ever
        raise error.with_traceback(None) from None
    print(f"run directory: {finished.path}", flush=True)


def settings_from(config: Mapping[str, Any]) -> tuple[Experiment, FederationSettings]:
    """Take an app's configuration apart."""
    own = {name.removeprefix(PREFIX).replace("-", "_"): v for name, v in config.items() if name.startswith(PREFIX)}
    if "out" not in own:
        raise InputError("federation.out is missing; allowed: the run directory on the server")
    values = {"on_failure": "drop", "dataset": "federation", "partition_by": "natural", "engine": "serial"}
    given = {name.replace("-", "_"): value for name, value in config.items() if not name.startswith(PREFIX)}
    experiment = Experiment.from_mapping(values | given)
    if experiment.training.normalise != "fixed":
        raise InputError("normalise is 'channels', which needs all samples in one place; allowed with nodes: fixed")
    every = experiment.place.checkpoint_every
    if every != 1:
        raise InputError(
            f"checkpoint_every is {every}, and nodes keep their states of the last rounds only; allowed with nodes: 1"
        )
    return experiment, validate(FederationSettings, own, prefix=PREFIX)


def conduct(grid: Grid, config: Mapping[str, Any]) -> Run:
    """Found a federation, or continue one, and run all rounds that are left."""
    experiment, settings = settings_from(config)
    directory = RunDirectory(settings.out)
    with directory.alone(), single_thread():
        server = _Conductor(grid, settings, directory)
        with weighed(lambda: server.engine.limit + PLAIN_LIMIT):
            run, briefing = server.resume() if directory.settings_file.is_file() else server.found(experiment)
            if not run.finished:
                server.carry_out(run, briefing)
    return run


@dataclass
class _Conductor:
    """One federation on the server: its Grid, its folder, and who takes part."""

    grid: Grid
    settings: FederationSettings
    directory: RunDirectory

    @property
    def _roster_file(self) -> Path:
        return self.directory.root / "roster.json"

    def found(self, experiment: Experiment) -> tuple[Run, Briefing]:
        """Start a federation with the nodes that are there; they say what kind of data it is about."""
        if experiment.training.kernels != "standard":
            raise InputError(f"kernels is {experiment.training.kernels!r}; allowed where nodes differ: standard")
        # letters and digits only: nodes name a folder after it
        self.roster = Roster(self._roster_file, experiment.dealing.clients, secrets.token_hex(8))
        self.engine = FlowerEngine(self.grid, self.roster, self.settings.timeout, limit=0)
        introductions = self._first_nodes()
        card = common_card(introductions.values())
        trainer = build_trainer(experiment, card, "cpu")
        initial = trainer.snapshot()
        experiment.algorithm().check(Subnetworks(trainer.network, trainer.layout), experiment.dealing.clients)
        briefing = brief(experiment, card, initial, STANDARD, experiment.dealing.clients)
        self._welcome(introductions, card, briefing)
        self.roster.write()
        environment = describe_machine(experiment.fingerprint(card.sha256), trainer.costs, STANDARD) | {
            "majority_baseline": self.roster.baseline()
        }
        self.directory.create(
            experiment.to_yaml(), environment, card, initial, self.roster.partition(), dict(briefing.plugins)
        )
        return Run(self.directory, experiment), briefing

    def resume(self) -> tuple[Run, Briefing]:
        """Continue a federation from its last checkpoint; nodes know it by its name."""
        run = open_run(self.directory.root)
        if run.environment()["code"] != code_digest():
            raise InputError(
                f"run {str(run.path)!r} was started by another version of the code; only the same one continues it"
            )
        rounds = self.directory.checkpoints.rounds()
        self.roster = Roster.read(self._roster_file, run.experiment.dealing.clients, rounds[-1] if rounds else 0)
        self.engine = FlowerEngine(self.grid, self.roster, self.settings.timeout, limit=0)
        return run, brief(run.experiment, run.card, self.directory.initial(), STANDARD, run.experiment.dealing.clients)

    def carry_out(self, run: Run, briefing: Briefing) -> None:
        """Run all rounds that are left."""
        experiment, directory = run.experiment, self.directory
        trainer = build_trainer(experiment, run.card, "cpu")
        standing = take_up(experiment, directory, trainer, experiment.dealing.clients)
        self.engine.limit = reply_limit(trainer.layout.size * 4)
        plan = LivePlan(
            rounds=experiment.training.rounds,
            cohort_size=experiment.cohort_size,
            eval_every=experiment.evaluation.eval_every,
            checkpoint_every=experiment.place.checkpoint_every,
            sizes=self.roster.sizes,
            test_sizes=self.roster.test_sizes,
            seed=experiment.seed,
            roster=self.roster,
            gather=lambda: self._gather(run.card, briefing),
            share=1.0 if experiment.algorithm().everyone else experiment.training.sample,
        )
        log = LogFile(directory.log_file, f"{experiment.method} on nodes", plan.rounds)
        standing.federation(self.engine, plan, Watchers([_Lines(plan.rounds), log])).run()
        write_json(directory.root / "traffic.json", vars(self.engine.traffic))
        directory.finish({"finished": datetime.now(UTC).isoformat(timespec="seconds")})

    # Nodes

    def _first_nodes(self) -> dict[int, Introduction]:
        """Wait for enough nodes that make sense; each says only once who it is, as that takes a process of its own."""
        deadline = time.monotonic() + self.settings.wait
        found: dict[int, Introduction] = {}
        while True:
            here = set(self.grid.get_node_ids())
            found = {node: said for node, said in found.items() if node in here}
            found |= self.engine.introductions(sorted(here - found.keys()))
            if len(found) >= self.settings.min_nodes:
                return found
            self._wait_for_nodes(len(found), deadline)

    def _gather(self, card: DataCard, briefing: Briefing) -> None:
        """Let new nodes join, and wait until enough are connected."""
        deadline = time.monotonic() + self.settings.wait
        while True:
            new = self.roster.keep_connected(self.grid.get_node_ids())
            if new:
                self._welcome(self.engine.introductions(sorted(new)), card, briefing)
                self.roster.write()
                self.directory.index.forget(self.directory.partition)
                self.roster.partition().save(self.directory.partition)
            if len(self.roster.connected()) >= self.settings.min_nodes:
                return
            self._wait_for_nodes(len(self.roster.connected()), deadline)

    def _wait_for_nodes(self, found: int, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise InputError(
                f"{found} nodes are connected after {self.settings.wait:g} s, and federation.min-nodes is "
                f"{self.settings.min_nodes}; the same 'flwr run' continues later"
            )
        time.sleep(LOOK_SECONDS)

    def _welcome(self, introductions: Mapping[int, Introduction], card: DataCard, briefing: Briefing) -> None:
        """Place nodes, those with wishes in the order of their wishes, and brief those that do not know it all yet."""
        placed = []
        for node, introduction in sorted(introductions.items(), key=lambda each: (each[1].wish, each[0])):
            refusal = self.roster.join(node, introduction, card)
            if refusal is not None:
                print(f"node {node} cannot join: {refusal}", flush=True)
            elif not introduction.briefed:
                placed.append(node)
        self.engine.introductions(placed, briefing)


class _Lines(Watcher):
    """Shows progress as lines, which `flwr run --stream` passes on."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Tell how a round went."""
        print(round_line(record, accuracy, self._rounds), flush=True)
        for client, reason in zip(record.failed, record.reasons, strict=True):
            print(f"  client {client} {last_line(reason)}", flush=True)
