"""xfed against other public simulators: `python -m benchmarks.peers --pfllib PATH --fl-bench PATH ...`.

Given clones of their repositories, each runs FedAvg on the same random images in the shape of CIFAR-10: the same
clients, cohorts, network with three exits, epochs and batch size, in its own loop, without evaluation. Adapters of ours
(in this folder) only hand the work over and read the clock. The first round warms up; start-up is told apart. Samples
are counted as the network sees them in training, because some simulators leave out the last batch. xfed and
simulators that use processes do so; the others use all threads.

Ratios are of xfed with fast kernels: how many times as many samples per second it trains, how many times as much CPU
time and memory the other takes. What cannot be run is told in a sentence. Exit code 1 where the fastest peer is not
left behind by the mark.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak
from benchmarks.peers.contest import Work
from xfed import Experiment
from xfed.federation.plan import Plan
from xfed.running import partition_of

HERE = Path(__file__).parent
RANDOM_IMAGES = HERE.parent / "random_images.py"
PEERS = {"pfllib": "PFLlib", "fl_bench": "FL-bench", "pfl_research": "pfl-research", "authors": "X-FED's authors"}
MARK = 2.3
UNTIL_EVALUATED = 5
"""The last rounds of a run of xfed, all of which are evaluated; the contest ends before them."""


@dataclass(frozen=True)
class Result:
    """What one contestant came to, over the rounds that count."""

    name: str
    start: float
    seconds: float
    cpu: float
    samples: int
    memory: int

    @property
    def speed(self) -> float:
        """Samples trained per second."""
        return self.samples / self.seconds


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "method": "fedavg",
        "dataset": "random-images",
        "random-images": {"samples": options.samples},
        "model": "convnet",
        "convnet": {"width": options.width},
        "clients": options.clients,
        "sample": options.cohort / options.clients,
        "calibration": 0.0,
        "rounds": options.rounds + 1 + UNTIL_EVALUATED,
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "lr_decay": 1.0,
        "eval_every": 10_000,
        "plugin": [str(RANDOM_IMAGES)],
    }


def work_of(options: argparse.Namespace, folder: Path) -> Work:
    """Draw data, clients and cohorts once, by xfed."""
    experiment = Experiment.from_mapping(settings_of(options))
    data = experiment.load_data()
    partition = partition_of(experiment, data)
    train = [partition[client].train for client in range(options.clients)]
    plan = Plan(
        rounds=experiment.training.rounds,
        cohort_size=experiment.cohort_size,
        eval_every=experiment.evaluation.eval_every,
        checkpoint_every=1,
        sizes=[len(rows) for rows in train],
        test_sizes=partition.sizes("test").tolist(),
        seed=experiment.seed,
        eval_clients=None,
    )
    cohorts = np.array([plan.cohort(round).clients for round in range(1, options.rounds + 2)])
    common = experiment.training.schedule()
    settings = {
        "width": options.width,
        "epochs": common.epochs,
        "batch_size": experiment.training.batch_size,
        "rate": common.rate,
        "momentum": common.momentum,
        "weight_decay": common.weight_decay,
    }
    return Work(folder, data.inputs.numpy(), data.labels.numpy(), train, cohorts, settings)


def measure(name: str, command: list[str], folder: Path) -> Result | None:
    """Run a contestant; where it fails, say so."""
    print(f"running {name} ...", flush=True)
    log = folder / "log.txt"
    with log.open("w") as output:
        sizes, code = peak(command, output)
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        print(f"{name} was not run: {lines[-1] if lines else f'exit code {code}'}")
        return None
    found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return Result(name, memory=sum(sizes), **found)


def run_ours(kernels: str, work: Work, options: argparse.Namespace, folder: Path) -> Result | None:
    samples = [options.epochs * sum(len(work.train[client]) for client in cohort) for cohort in work.cohorts]
    given = {"experiment": {**settings_of(options), "kernels": kernels}, "samples": samples}
    (folder / "ours.json").write_text(json.dumps(given), encoding="utf-8")
    return measure(f"xfed, {kernels} kernels", [sys.executable, "-m", "benchmarks.peers.ours", str(folder)], folder)


def run_peer(peer: str, repository: Path, work: Work, options: argparse.Namespace, folder: Path) -> Result | None:
    name = f"{PEERS[peer]} ({commit(repository)})"
    (folder / "work.npz").symlink_to(work.folder / "work.npz")
    return measure(name, [options.python, str(HERE / f"{peer}.py"), str(folder), str(repository.resolve())], folder)


def commit(repository: Path) -> str:
    """Name the commit of a clone."""
    git = ["git", "-C", str(repository), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


def show(results: Sequence[Result], ours: Result) -> None:
    print(f"\n{'':40} start   round   samples/s   CPU   memory   xfed is   its CPU   its memory")
    for r in results:
        per_sample = (r.cpu / r.samples) / (ours.cpu / ours.samples)
        print(
            f"{r.name:38} {r.start:5.1f} s {r.seconds:6.1f} s {r.speed:9,.0f} {r.cpu:6.0f} s {r.memory / 1e9:5.2f} GB "
            f"{ours.speed / r.speed:7.2f} × {per_sample:7.2f} × {r.memory / ours.memory:9.2f} ×"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer, name in PEERS.items():
        parser.add_argument(f"--{peer.replace('_', '-')}", type=Path, metavar="PATH", help=f"clone of {name}")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has what the peers import")
    parser.add_argument("--samples", type=int, default=60_000, help="images, for training and testing together")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=10, help="clients per round")
    parser.add_argument("--width", type=int, default=32, help="channels of the network")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after one that warms up")
    options = parser.parse_args(arguments)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as root:
        work = work_of(options, Path(root))
        work.save()

        def folder(name: str) -> Path:
            made = Path(root) / name
            made.mkdir()
            return made

        found = [run_ours(kernels, work, options, folder(kernels)) for kernels in ("standard", "fast")]
        for peer in PEERS:
            repository = getattr(options, peer)
            if repository is None:
                print(f"{PEERS[peer]} was not run: no --{peer.replace('_', '-')} given")
            else:
                found.append(run_peer(peer, repository, work, options, folder(peer)))
        results = [result for result in found if result is not None]
    ours = next((r for r in results if r.name == "xfed, fast kernels"), None)
    if ours is None:
        print("nothing to compare with: xfed did not run with fast kernels")
        return 1
    show(results, ours)
    peers = [r for r in results if not r.name.startswith("xfed")]
    if not peers:
        print("no peer was run")
        return 1
    fastest = max(peers, key=lambda r: r.speed)
    factor = ours.speed / fastest.speed
    print(f"xfed with fast kernels trains {factor:.2f} times as fast as {fastest.name} (mark: {MARK})")
    return int(factor < MARK)


if __name__ == "__main__":
    sys.exit(main())
