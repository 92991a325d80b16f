"""A long run that is disturbed all the time: `python -m benchmarks.soak` (2,000 tiny rounds).

Workers, the fork server and now and then the run itself are killed at random; a killed run is resumed. Memory, open
files and shared memory are noted as rounds go by (soak.csv) and drawn (soak.svg). Ends with exit code 1 unless the run
finishes, memory stays flat, and open files and shared memory return to what they were at the start.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from tests.sessions import family, segments_of

from xfed import Experiment, resume, run
from xfed.evaluation.summary import RoundAccuracy
from xfed.federation.watching import Watcher
from xfed.runs.records import RoundRecord

PAGE = os.sysconf("SC_PAGE_SIZE")
KILLS = {"worker": 0.85, "fork server": 0.1, "run": 0.05}
FLAT = 1.10
"""Memory is flat when the last tenth of the rounds needs at most this times what the second tenth needed."""
SETTINGS = {
    "clients": 8,
    "sample": 0.5,
    "epochs": 1,
    "batch_size": 32,
    "lr": 0.01,
    "lr_decay": 1.0,
    "alpha": 1.0,
    "eval_every": 50,
    "workers": 2,
    "engine": "processes",
    "convnet": {"width": 4},
}


@dataclass(frozen=True)
class Sample:
    """What a run held at the end of a round."""

    round: int
    leg: int
    """How many times the run had been started or resumed."""
    main_mb: float
    workers_mb: float
    files: int
    segments: int


def resident(pid: int) -> float:
    """Give the memory of a process in MB; nothing for one that is gone."""
    try:
        return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6, 1)
    except (OSError, IndexError):
        return 0.0


class Notes(Watcher):
    """Writes a sample at the end of each round: a watcher of the run, in its own process."""

    def __init__(self, path: Path, leg: int) -> None:
        self.path, self.leg = path, leg

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Look at this process and its workers."""
        _, workers = family(os.getpid())
        sample = Sample(
            record.round,
            self.leg,
            resident(os.getpid()),
            round(sum(map(resident, workers)), 1),
            len(os.listdir("/proc/self/fd")),
            len(segments_of([os.getpid(), *workers])),
        )
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(asdict(sample).values())


def leg(folder: Path, rounds: int, number: int) -> None:
    """Run or resume, in this process, and note what is open before and after."""
    with tempfile.TemporaryDirectory() as elsewhere:  # loads modules and starts what stays, such as the fork server
        run(Experiment.from_mapping({**SETTINGS, "rounds": 1, "out": Path(elsewhere) / "run"}), progress=False)
    before = len(os.listdir("/proc/self/fd"))
    path, watchers = folder / "run", [Notes(folder / "samples.csv", number)]
    if (path / "settings.yaml").exists():
        resume(path, progress=False, watchers=watchers)
    else:
        run(Experiment.from_mapping({**SETTINGS, "rounds": rounds, "out": path}), progress=False, watchers=watchers)
    after = len(os.listdir("/proc/self/fd"))
    (folder / "end.json").write_text(json.dumps({"before": before, "after": after}))


class Soak:
    """Keeps a run going to its end, and kills what it can of it meanwhile."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.random = random.Random(options.seed)
        self.kills: list[tuple[int, str]] = []
        self._pids: set[int] = set()

    def carry_out(self) -> bool:
        """Go on until the run is finished; tell whether it is."""
        for number in range(1, self.options.legs + 1):
            command = [sys.executable, "-m", "benchmarks.soak", "--leg", str(number), "--folder", str(self.folder)]
            running = subprocess.Popen([*command, "--rounds", str(self.options.rounds)], start_new_session=True)
            while self._wait(running):
                self._kill(running.pid)
            if running.returncode == 0:
                return True
            if running.returncode != -signal.SIGKILL:
                print(f"leg {number} ended with {running.returncode}")
                return False
        return False

    def _wait(self, running: subprocess.Popen[bytes]) -> bool:
        """Wait for some rounds, a random number of them; tell whether the run still goes on."""
        until = self._round() + 1 + int(self.random.expovariate(1 / self.options.between))
        while running.poll() is None and self._round() < until:
            time.sleep(0.05)
        return running.poll() is None

    def _round(self) -> int:
        return max((sample.round for sample in self.samples(last=True)), default=0)

    def _kill(self, pid: int) -> None:
        server, workers = family(pid)
        self._pids |= {pid, *workers}
        [victim] = self.random.choices(list(KILLS), list(KILLS.values()))
        if not workers or (victim == "fork server" and server is None):
            return
        chosen = {"worker": self.random.choice(workers), "fork server": server, "run": pid}[victim]
        try:
            os.kill(chosen, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.kills.append((self._round(), victim))

    def samples(self, last: bool = False) -> list[Sample]:
        """Read what has been noted so far, or the last of it; a killed run may have left half a line."""
        path = self.folder / "samples.csv"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        rows = [row for row in csv.reader(whole[-1:] if last else whole) if len(row) == len(fields(Sample))]
        return [Sample(int(r[0]), int(r[1]), float(r[2]), float(r[3]), int(r[4]), int(r[5])) for r in rows]

    def left(self) -> int:
        """Count the shared memory that is left of all that ran."""
        return len(segments_of(self._pids))


def growth(samples: Sequence[Sample], name: str) -> float:
    """Compare the last tenth of the rounds with the second, in which everything has been loaded: medians."""
    rounds = max(sample.round for sample in samples)
    of = {share: [getattr(s, name) for s in samples if int(10 * (s.round - 1) / rounds) == share] for share in (1, 9)}
    return float(np.median(of[9]) / np.median(of[1]))


def write(samples: Sequence[Sample], kills: Sequence[tuple[int, str]], path: Path) -> None:
    """Write a row per sample, with the kills so far."""
    with path.open("w", newline="") as file:
        names = [field.name for field in fields(Sample)]
        writer = csv.DictWriter(file, [*names, *(f"{victim} killed" for victim in KILLS)], lineterminator="\n")
        writer.writeheader()
        for sample in samples:
            so_far = Counter(victim for round, victim in kills if round <= sample.round)
            writer.writerow(asdict(sample) | {f"{victim} killed": so_far[victim] for victim in KILLS})


def draw(samples: Sequence[Sample], kills: Sequence[tuple[int, str]], path: Path) -> None:
    """Draw memory, open files and shared memory over the rounds, with the kills below."""
    matplotlib.rcParams["svg.hashsalt"] = "xfed"
    figure = Figure(figsize=(8, 6.4), layout="constrained")
    memory, files, segments, killed = figure.subplots(4, sharex=True, height_ratios=(3, 1.5, 1.5, 1))
    rounds = [sample.round for sample in samples]
    memory.plot(rounds, [sample.main_mb for sample in samples], lw=1, label="main process")
    memory.plot(rounds, [sample.workers_mb for sample in samples], lw=1, label="two workers together")
    memory.set(ylabel="memory (MB)", ylim=(0, None))
    memory.legend(loc="lower right")
    files.plot(rounds, [sample.files for sample in samples], lw=1, color="C2")
    files.set(ylabel="open files", ylim=(0, None))
    segments.plot(rounds, [sample.segments for sample in samples], lw=1, color="C3")
    segments.set(ylabel="segments", ylim=(0, None))
    names = list(KILLS)
    killed.eventplot(
        [[r for r, victim in kills if victim == name] for name in names], linelengths=0.6, color="k", lw=0.7
    )
    killed.set(xlabel="round", ylim=(-0.5, len(names) - 0.5))
    killed.set_yticks(range(len(names)), [f"{name} killed" for name in names])
    for axes in (memory, files, segments):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, draw, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--between", type=float, default=8.0, help="mean number of rounds between two kills")
    parser.add_argument("--legs", type=int, default=100, help="give up after so many starts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder for soak.csv and soak.svg")
    parser.add_argument("--leg", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.leg is not None:
        leg(options.folder, options.rounds, options.leg)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="xfed-soak-") as folder:
        soak = Soak(Path(folder), options)
        finished, samples = soak.carry_out(), soak.samples()
        end = json.loads((Path(folder) / "end.json").read_text()) if finished else {"before": 0, "after": -1}
    by_round = {sample.round: sample for sample in samples}
    shown = [by_round[round] for round in sorted(by_round) if round % max(1, options.rounds // 400) == 0]
    write(shown, soak.kills, options.out / "soak.csv")
    draw(shown, soak.kills, options.out / "soak.svg")
    grown = {name: growth(samples, name) for name in ("main_mb", "workers_mb")}
    held = finished and end["before"] == end["after"] and soak.left() == 0 and max(grown.values()) <= FLAT
    counts = ", ".join(f"{sum(victim == name for _, victim in soak.kills)} of a {name}" for name in KILLS)
    print(f"{max(by_round)} rounds in {samples[-1].leg} legs; kills: {counts}")
    main_grown, workers_grown = grown.values()
    print(f"memory, last tenth of the rounds over the second: main {main_grown:.3f}, workers {workers_grown:.3f}")
    print(f"open files before and after: {end['before']}, {end['after']}; segments left: {soak.left()}")
    print("held" if held else "NOT held")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
