"""Kill runs at random moments, continue them, and compare what they end with to undisturbed runs, bit for bit.

    python -m tests.chaos --kills 100

A kill is SIGKILL or SIGTERM, to the command, to everything it started, to a worker or to the fork server. A round is
lost when it had been announced and is not in a checkpoint afterwards. Ends with exit code 1 unless every run ends with
the bits of an undisturbed one, no round is lost, and nothing is left behind.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from queue import Queue

import yaml

from tests.bits import differences
from tests.conftest import TINY, tiny
from tests.sessions import Session
from xfed import InputError, Run, open_run, run

METHODS = ("xfed", "fedper", "fedavg", "ditto")
ENGINES = ("serial", "processes")
ROUNDS = 8
SETTINGS = {**TINY, "rounds": ROUNDS, "eval_every": 1, "workers": 2}
STARTS = 0.15
"""The share of kills before the first round."""
PATIENCE = 180.0
ANNOUNCED = re.compile(rf"round (\d+)/{ROUNDS}, loss")


@dataclass
class Outcome:
    """What one kill did."""

    method: str
    engine: str
    victim: str
    signal: signal.Signals
    round: int = 0
    """The last round that was announced before."""
    lost: int = 0
    seconds: float = 0.0
    """From SIGTERM to the end of the command."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        what = f"{self.method:7s} {self.engine:10s} {self.signal.name} to {self.victim:12s} after round {self.round}"
        end = "; ".join(self.faults) or "same bits"
        time = f", {self.seconds:.1f} s" if self.seconds else ""
        return f"{what}, {self.lost} lost{time}: {end}"


class Chaos:
    """Runs, kills and compares, in a folder of its own."""

    def __init__(self, folder: Path, references: Mapping[str, Run], seed: int) -> None:
        self.folder, self.references, self.random = folder, references, random.Random(seed)
        folder.mkdir()

    def kill(self, method: str, engine: str) -> Outcome:
        """Kill one run; one that had ended before does not count."""
        outcome = None
        while outcome is None:
            outcome = self._kill(method, engine)
        return outcome

    def _kill(self, method: str, engine: str) -> Outcome | None:
        path, settings = self.folder / "run", self.folder / "settings.yaml"
        shutil.rmtree(path, ignore_errors=True)
        number = self.random.choice([signal.SIGKILL, signal.SIGTERM])
        victim = self._victim(engine, number)
        every = self.random.choice([1, 3]) if number == signal.SIGTERM else 1
        values = {**SETTINGS, "method": method, "engine": engine, "checkpoint_every": every}
        settings.write_text(yaml.safe_dump(values))
        started = self._command("run", str(settings), "--out", str(path))
        if not self._strike(started, path, victim, number):
            self._finish(started, path, [])
            return None
        outcome = Outcome(method, engine, victim, number)
        told = self._end(started, outcome)
        outcome.round = max(map(int, ANNOUNCED.findall(told)), default=0)
        if victim in ("command", "everything"):
            self._look_at_the_end(outcome, started, told, path)
            again = ("resume", str(path)) if (path / "settings.yaml").exists() else None
            if again is None:
                shutil.rmtree(path, ignore_errors=True)
                again = ("run", str(settings), "--out", str(path))
            continued = self._command(*again)
            self._finish(continued, path, outcome.faults)
        elif started.main.returncode != 0:
            outcome.faults.append(f"ended with {started.main.returncode}: {told.strip().splitlines()[-1:]}")
        if not outcome.faults and (found := differences(self.references[method], open_run(path))):
            outcome.faults.append(f"other bits in {', '.join(found[:3])}")
        return outcome

    def _victim(self, engine: str, number: signal.Signals) -> str:
        if number == signal.SIGTERM:
            return self.random.choice(["command", "everything"])
        rest = ["worker", "fork server"] if engine == "processes" else []
        return self.random.choice(["command", "command", *rest])

    def _command(self, *arguments: str) -> Session:
        return Session(["-m", "xfed", *arguments], env={**os.environ, "COLUMNS": "200"}, cwd=self.folder)

    def _strike(self, session: Session, path: Path, victim: str, number: signal.Signals) -> bool:
        """Wait for a random moment, of a random round or now and then of the start, and send the signal."""
        if victim in ("command", "everything") and self.random.random() < STARTS:
            time.sleep(self.random.uniform(0.1, 4.0))
        else:
            before = self.random.randrange(ROUNDS)
            sign = path / "metrics" / f"round-{before:06d}.parquet" if before else path / "settings.yaml"
            session.wait_until(sign.exists, PATIENCE)
            if victim == "worker":
                session.wait_until(lambda: bool(session.workers()), PATIENCE)
            time.sleep(self.random.uniform(0.0, 0.4))
        session.processes()
        if session.main.poll() is not None:
            return False
        if victim == "everything":
            os.killpg(session.main.pid, number)
            return True
        pids = {"command": session.main.pid, "fork server": session.fork_server()}
        pid = self.random.choice(session.workers() or [None]) if victim == "worker" else pids[victim]
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def _end(self, session: Session, outcome: Outcome) -> str:
        struck = time.monotonic()
        told = session.end(PATIENCE)
        outcome.seconds = time.monotonic() - struck if outcome.signal == signal.SIGTERM else 0.0
        if not session.wait_until_gone(30.0):
            outcome.faults.append(f"still running: {session.processes()}")
        elif session.segments():
            outcome.faults.append(f"shared memory left: {session.segments()}")
        return told

    def _look_at_the_end(self, outcome: Outcome, session: Session, told: str, path: Path) -> None:
        """Check what a killed command left, and what a terminated one said."""
        try:
            saved = open_run(path).directory.checkpoints.read().round
        except InputError:
            saved = 0
        outcome.lost = max(0, outcome.round - saved)
        if outcome.lost:
            outcome.faults.append(f"{outcome.lost} rounds lost")
        code = session.main.returncode
        if "Traceback" in told:
            outcome.faults.append(f"a traceback: {told.strip().splitlines()[-1]}")
        if outcome.signal == signal.SIGKILL:
            if code != -signal.SIGKILL:
                outcome.faults.append(f"ended with {code}")
            return
        last = told.strip().splitlines()[-1:]
        advice = f"xfed: interrupted; continue with 'xfed resume {path}'"
        outside = not (path / "settings.yaml").exists() or (path / "finished.json").exists()
        if code == -signal.SIGTERM and outside:
            return  # Python itself was starting or ending
        if code != 128 + signal.SIGTERM or (outcome.round > 0 and not outside and last != [advice]):
            outcome.faults.append(f"ended with {code}, saying {last}")

    def _finish(self, session: Session, path: Path, faults: list[str]) -> None:
        told = session.end(PATIENCE)
        if session.main.returncode != 0:
            faults.append(f"was not continued ({session.main.returncode}): {told.strip()[-300:]}")


def kills(folder: Path, count: int, seed: int, jobs: int) -> Iterator[Outcome]:
    """Kill so many runs, method after method and engine after engine, some at a time."""
    settings = {**SETTINGS, "engine": "serial"}
    references = {m: run(tiny(method=m, out=folder / m, **settings), progress=False) for m in METHODS[:count]}
    free: Queue[Chaos] = Queue()
    for job in range(jobs):
        free.put(Chaos(folder / f"job-{job}", references, seed + 1000 * job))

    def one(case: tuple[str, str]) -> Outcome:
        chaos = free.get()
        try:
            return chaos.kill(*case)
        finally:
            free.put(chaos)

    cases = cycle([(method, engine) for engine in ENGINES for method in METHODS])
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(one, case) for case in islice(cases, count)]):
            yield done.result()


def summary(outcomes: Sequence[Outcome]) -> str:
    """Say what all kills did, a line per method and engine."""
    lines = [f"{'method':8s}{'engine':11s}{'SIGKILL':>8s}{'SIGTERM':>8s}{'rounds lost':>13s}{'bit-exact ends':>16s}"]
    for engine in ENGINES:
        for method in METHODS:
            some = [o for o in outcomes if (o.method, o.engine) == (method, engine)]
            killed = sum(o.signal == signal.SIGKILL for o in some)
            lost, exact = sum(o.lost for o in some), sum(not o.faults for o in some)
            lines.append(f"{method:8s}{engine:11s}{killed:8d}{len(some) - killed:8d}{lost:13d}{exact:16d}")
    lost, exact = sum(o.lost for o in outcomes), sum(not o.faults for o in outcomes)
    slowest = max((o.seconds for o in outcomes), default=0.0)
    lines.append(f"{len(outcomes)} kills: {lost} rounds lost, {exact} bit-exact ends")
    lines.append(f"longest from SIGTERM to the end: {slowest:.2f} s")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the kills out and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    given = parser.parse_args(arguments)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="xfed-chaos-") as folder:
        for outcome in kills(Path(folder), given.kills, given.seed, given.jobs):
            outcomes.append(outcome)
            print(f"{len(outcomes):3d} {outcome}", flush=True)
    print(summary(outcomes))
    return int(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
