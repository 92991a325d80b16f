"""What a round costs with 100 clients and with 100,000, at the same cohort: `python -m benchmarks.scale`.

X-FED, Ditto and FedAMP on the embedded digits, every client with its own draw of 40 samples; a checkpoint after every
round, evaluation of as many clients as the cohort has. Every run is a process of its own with its workers, sizes take
turns, and the growth is the median over repetitions of each repetition's own ratio to the fewest clients. The first
round, in which workers start, counts as start-up. Memory is the peak PSS of all processes of a run, start-up included.

Beside it: what keeping the books of a round costs (versions of the cohort, checkpoint, collection) after so many
clients have taken part.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import torch

from benchmarks.memory import peak
from xfed import Watcher, run
from xfed.experiment import Experiment
from xfed.runs.checkpoint import Checkpoint, Checkpoints
from xfed.runs.store import ClientStore

MOST_TIME, MOST_MEMORY = 1.3, 2.0
BOOKED_ROUNDS = 10


class Clock(Watcher):
    """Notes when rounds end."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def round_ended(self, *_: object) -> None:
        """Note the time."""
        self.ended.append(time.perf_counter())


def one_run(method: str, clients: int, cohort: int, rounds: int, width: int) -> dict[str, float]:
    """Carry a run out in this process; give the seconds of its start-up and of a later round."""
    clock = Clock()
    with TemporaryDirectory() as folder:
        values = {
            "method": method,
            "dataset": "digits",
            "clients": clients,
            "sample": cohort / clients,
            "partition_by": "overlapping",
            "samples_per_client": 40,
            "rounds": rounds,
            "epochs": 2,
            "batch_size": 16,
            "eval_every": 2,
            "eval_clients": cohort,
            "convnet.width": width,
            "out": Path(folder) / "run",
        }
        started = time.perf_counter()
        run(Experiment.from_mapping(values), progress=False, watchers=[clock])
    first, *_, last = clock.ended
    return {"start": first - started, "round": (last - first) / (rounds - 1)}


def one_process(arguments: list[str | int]) -> dict[str, float]:
    """Carry a run out in a process of its own; give its memory, too."""
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks.scale", "--one", json.dumps(arguments), "--answer", str(answer)]
        sizes, code = peak(command)
        if code != 0:
            sys.exit(code)
        return {**json.loads(answer.read_text(encoding="utf-8")), "memory": sum(sizes)}


def books(touched: int, cohort: int) -> float:
    """Give the seconds that the books of a round take after so many clients have taken part."""
    with TemporaryDirectory() as folder:
        store = ClientStore(Path(folder) / "state", dict.fromkeys(range(touched), 1))
        checkpoints = Checkpoints(Path(folder) / "checkpoints")
        seconds = []
        for round in range(2, 2 + BOOKED_ROUNDS):
            started = time.perf_counter()
            store.round = round
            for client in range(cohort):
                store.put(client * (touched // cohort), {"x": torch.zeros(100)})
            checkpoints.write(Checkpoint(round, {"x": torch.zeros(100)}, store.versions, store.versions))
            store.collect(checkpoints.rounds())
            seconds.append(time.perf_counter() - started)
        return median(seconds)


def measure(options: argparse.Namespace) -> dict[tuple[str, int], list[dict[str, float]]]:
    """Run every method with every number of clients, taking turns."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for repetition in range(options.repetitions):
        for method in options.methods:
            for clients in options.clients:
                figures = one_process([method, clients, options.cohort, options.rounds, options.width])
                found.setdefault((method, clients), []).append(figures)
                print(
                    f"{repetition + 1}/{options.repetitions} {method} {clients:>7,} clients: "
                    f"{figures['round']:.3f} s per round, start {figures['start']:.1f} s, "
                    f"{figures['memory'] / 1e6:.0f} MB",
                    flush=True,
                )
    return found


def growth(runs: Iterable[dict[str, float]], least: Iterable[dict[str, float]], name: str) -> float:
    """Give the median over repetitions of a figure over the same with the fewest clients."""
    return median(run[name] / base[name] for run, base in zip(runs, least, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--methods", nargs="+", default=["xfed", "ditto", "fedamp"])
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--width", type=int, default=16, help="channels of the network")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        options.answer.write_text(json.dumps(one_run(*options.one)), encoding="utf-8")
        return 0
    found = measure(options)
    worst = {"round": 0.0, "memory": 0.0}
    fewest, *more = sorted(options.clients)
    print(f"growth from {fewest:,} clients, cohort of {options.cohort}:")
    for method in options.methods:
        for clients in more:
            runs, least = found[method, clients], found[method, fewest]
            grown = {name: growth(runs, least, name) for name in worst}
            worst = {name: max(worst[name], grown[name]) for name in worst}
            seconds = {name: mean(run[name] for run in runs) for name in ("round", "start")}
            print(
                f"{method} {clients:>7,} clients: time per round × {grown['round']:.2f}, "
                f"memory × {grown['memory']:.2f} "
                f"({seconds['round']:.3f} s per round, start {seconds['start']:.1f} s)"
            )
    books_of = {touched: 1e3 * books(touched, options.cohort) for touched in (fewest, *more)}
    print(
        "books of a round: " + ", ".join(f"{ms:.0f} ms after {touched:,} clients" for touched, ms in books_of.items())
    )
    print(
        f"at most: time per round × {worst['round']:.2f} (mark: below {MOST_TIME}), "
        f"memory × {worst['memory']:.2f} (mark: below {MOST_MEMORY})"
    )
    return int(worst["round"] >= MOST_TIME or worst["memory"] >= MOST_MEMORY)


if __name__ == "__main__":
    sys.exit(main())
