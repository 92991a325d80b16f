"""How much of a bare PyTorch loop's speed is left in a federated round: `python -m benchmarks.round`.

Rounds of FedAvg and of X-FED on random images in the shape of CIFAR-10, run by `xfed.run` as a user would: one
worker process per core, a checkpoint after every round (the default); no evaluation falls on the measured rounds.
After each, the bare loop of `benchmarks.bare` does the same steps on the same samples in the same order, one process
per core too. The share is the bare loop's time over xfed's, median over the repetitions; the first round of both warms
up. X-FED's rounds are those in which exits join until all train.

Each width is run with the standard kernels, where both sides must end with the same parameters, bit for bit, and with
the fast ones, which the bare loop does not have. Last, for each width, one FedAvg round the plain way
(`benchmarks.plain`). Exit code 1 where a share misses its mark or a parameter differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import bare
from benchmarks.plain import plain_round
from xfed import Experiment, Watcher, open_run, running
from xfed.federation import loop
from xfed.federation.host import build_trainer
from xfed.models.layout import Layout, ModelState
from xfed.models.parts import Parts
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server
from xfed.randomness import Purpose
from xfed.runs.store import ClientStore
from xfed.training.trainer import EVALUATION_BATCH, Stream

RANDOM_IMAGES = Path(__file__).with_name("random_images.py")
METHODS, KERNELS = ("fedavg", "xfed"), ("standard", "fast")
MARKS = {("standard", "fedavg"): 0.95, ("standard", "xfed"): 0.92, ("fast", "fedavg"): 1.25, ("fast", "xfed"): 1.25}
UNTIL_EVALUATED = 5
"""The last rounds of a run, all of which are evaluated."""


def experiment_of(method: str, width: int, kernels: str, options: argparse.Namespace, out: Path) -> Experiment:
    measured = options.repetitions + 1
    return Experiment.from_mapping(
        {
            "method": method,
            "dataset": "random-images",
            "random-images": {"samples": options.samples},
            "model": "convnet",
            "convnet": {"width": width},
            "kernels": kernels,
            "clients": options.clients,
            "sample": options.cohort / options.clients,
            "calibration": 0.0,
            "rounds": max(2 * measured, measured + UNTIL_EVALUATED),
            "epochs": options.epochs,
            "batch_size": options.batch_size,
            "eval_every": 10_000,
            "workers": options.workers,
            "plugin": (RANDOM_IMAGES,),
            "out": out,
        }
    )


@dataclass
class Race(Watcher):
    """Watches a run: after every round of xfed, lets the bare loop run the same round."""

    experiment: Experiment
    rounds: int
    train: list[NDArray[np.int64]]
    """Training samples by client."""
    opponent: bare.FedAvg
    cores: bare.Cores
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    students: dict[int, list[int]] = field(default_factory=dict)
    cohort: tuple[int, ...] = ()
    _begin: float = 0.0

    @contextmanager
    def noting_cohorts(self) -> Iterator[None]:
        """Note who takes part in a round, and which exits train there."""
        downloads = loop.downloads

        def noting(algorithm: Algorithm, server: Server, cohort: Cohort) -> dict[int, Message]:
            messages = downloads(algorithm, server, cohort)
            everything = list(range(bare.STAGES))
            self.cohort = cohort.clients
            self.students = {c: messages[c].values.get("students", everything) for c in cohort.clients}  # type: ignore[misc]
            return messages

        with patch.object(loop, "downloads", noting):
            self._begin = perf_counter()
            yield
        self.cores.close()

    def round_ended(self, record: Any, accuracy: object) -> None:
        """Stop the clock, run the bare round, start the clock again."""
        self.ours.append(perf_counter() - self._begin)
        works = [self._work(record.round, client) for client in self.cohort]
        begin = perf_counter()
        self.opponent.round(self.cores, self.cohort, works)
        self.theirs.append(perf_counter() - begin)
        self.samples.append(sum(work.orders.size for work in works))
        assert accuracy is None, "no measured round is evaluated"
        print(f"  round {record.round}: xfed {self.ours[-1]:.2f} s, bare {self.theirs[-1]:.2f} s", flush=True)
        if record.round == self.rounds:
            raise KeyboardInterrupt
        self._begin = perf_counter()

    def _work(self, round: int, client: int) -> bare.Work:
        rows = self.train[client]
        generator = torch.Generator().manual_seed(Stream(self.experiment.seed, client, round).derive(Purpose.BATCHES))
        orders = [torch.randperm(len(rows), generator=generator) for _ in range(self.experiment.training.epochs)]
        rate = self.experiment.training.schedule().rate_in(round)
        return bare.Work(
            start=[],
            rows=rows,
            orders=torch.stack(orders).numpy(),
            rate=rate,
            batch_size=self.experiment.training.batch_size,
            teacher_batch=EVALUATION_BATCH,
            exits=self.students[client],
            distils=False,
        )


def race(
    method: str, width: int, kernels: str, options: argparse.Namespace, folder: Path
) -> tuple[float, float, float]:
    """Run one method on both sides; give xfed's share, its samples per second and the largest difference."""
    experiment = experiment_of(method, width, kernels, options, folder)
    data = experiment.load_data()
    partition = running.partition_of(experiment, data)
    trainer = build_trainer(experiment, data.card, "cpu")
    initial = arrays_of(trainer.layout, trainer.snapshot())
    opponent = {"fedavg": bare.FedAvg, "xfed": bare.XFed}[method](initial)
    cores = bare.Cores(options.workers, data.inputs, data.labels, width)
    train = [partition[client].train for client in range(options.clients)]
    contest = Race(experiment, options.repetitions + 1, train, opponent, cores)
    name = f"{method}, width {width}, {kernels} kernels"
    print(f"{name}: {options.cohort} of {options.clients} clients a round, {options.workers} processes")
    with contest.noting_cohorts(), suppress(KeyboardInterrupt):
        running.run(experiment, progress=False, watchers=[contest])
    difference = largest_difference(trainer.layout, folder, opponent)
    share = median(b / a for a, b in zip(contest.ours[1:], contest.theirs[1:], strict=True))
    speed = median(n / a for n, a in zip(contest.samples[1:], contest.ours[1:], strict=True))
    bits = "the same bits" if difference == 0 else f"parameters differ by up to {difference:.1e}"
    print(f"{name}: {speed:,.0f} samples/s, {share:.3f} of the bare loop, {bits}", flush=True)
    return share, speed, difference


def arrays_of(layout: Layout, state: ModelState) -> bare.Arrays:
    """Give a model's parameters in the order of its network."""
    return [view.numpy().copy() for view in layout.views(state).values()]


def largest_difference(layout: Layout, run: Path, opponent: bare.FedAvg) -> float:
    """Compare everything both sides hold after the last round: shared parameters, and every client's own."""
    directory = open_run(run).directory
    checkpoint = directory.checkpoints.read()
    tensors = checkpoint.tensors
    shared = ModelState(tensors["model.parameters"], tensors["model.statistics"])
    pairs = list(zip(arrays_of(layout, shared), opponent.model, strict=True))
    if isinstance(opponent, bare.XFed):
        states = ClientStore(directory.client_states, checkpoint.client_versions)
        kept = ClientStore(directory.server_states, checkpoint.kept_versions)
        assert states.known() == kept.known() == sorted(opponent.personal)
        for client, exits in opponent.personal.items():
            model = shared.clone()
            layout.unpack(model, {**states.get(client), Parts.LAST_EXIT.key: kept.get(client)["mixed"]})
            pairs += zip(arrays_of(layout, model)[2 * bare.STAGES :], exits, strict=True)
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def plain_factors(
    width: int, options: argparse.Namespace, speeds: Sequence[float], folder: Path
) -> tuple[list[float], list[float]]:
    """Run one round the plain way; give how many times as fast xfed's samples go by, without and with evaluation."""
    experiment = experiment_of("fedavg", width, "standard", options, folder)
    data = experiment.load_data()
    partition = running.partition_of(experiment, data)
    cohort = [partition[client].train.tolist() for client in range(options.cohort)]
    tested = [partition[client].test.tolist() for client in range(options.clients)]
    torch.set_num_threads(os.cpu_count() or 1)
    training, evaluating = plain_round(
        data.inputs, data.labels, width, cohort, tested, options.epochs, options.batch_size, experiment.training.lr
    )
    samples = options.epochs * sum(map(len, cohort))
    print(f"plain way, width {width}: {training:.1f} s of training, {evaluating:.1f} s of evaluation a round")
    return [v * training / samples for v in speeds], [v * (training + evaluating) / samples for v in speeds]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=60_000, help="images, for training and testing together")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=10, help="clients per round")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 128], help="channels of the network")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=3, help="measured rounds of each method")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes on either side")
    options = parser.parse_args(arguments)
    lines, missed = [], []
    for width in options.widths:
        with tempfile.TemporaryDirectory() as folder:
            found = {
                (kernels, method): race(method, width, kernels, options, Path(folder) / f"{method}-{kernels}")
                for kernels, method in MARKS
            }
            speeds = [found[kernels, "fedavg"][1] for kernels in KERNELS]
            training, whole = plain_factors(width, options, speeds, Path(folder) / "plain")
        for number, kernels in enumerate(KERNELS):
            shares = [f"{method} {found[kernels, method][0]:.3f}" for method in METHODS]
            marks = [f"{method} {MARKS[kernels, method]}" for method in METHODS]
            lines.append(
                f"width {width}, {kernels} kernels: {', '.join(shares)} of the bare loop (marks: {', '.join(marks)}); "
                f"{training[number]:.2f} times as fast as the plain way, {whole[number]:.2f} with its evaluation"
            )
        for (kernels, method), mark in MARKS.items():
            share, _, difference = found[kernels, method]
            if share < mark or (kernels == "standard" and difference > 0):
                missed.append(f"{method} at width {width} with {kernels} kernels")
    print("\n".join(lines))
    print(f"missed: {'; '.join(missed)}" if missed else "all marks met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
