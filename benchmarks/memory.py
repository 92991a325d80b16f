"""How much memory X-FED with ResNet-18 needs, all processes together: `python -m benchmarks.memory`.

100 clients, 10 a round, 60,000 random images in the shape of CIFAR-100, by default two worker processes; run by
`xfed.run` in a process of its own, evaluations, checkpoints and final models included. Memory is the proportional set
size (PSS: a page that several processes share counts once) of that process and all its children, sampled ten times a
second (Linux). Clients train on few samples and for one epoch, which saves an hour and no memory: batches, networks
and data have their full size. The usual way, a model and an optimizer per client, is computed, not measured. Exit code
1 at 3 GB or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from xfed import Experiment, running
from xfed.models.layout import Layout
from xfed.models.parts import Parts

MOST_BYTES = 3e9
INTERVAL = 0.1
IMAGES = 60_000
RANDOM_IMAGES = Path(__file__).with_name("random_images.py")


def experiment_of(options: argparse.Namespace, folder: Path) -> Experiment:
    """Describe the run; a partition file gives each client its few samples."""
    share, needed = IMAGES // options.clients, options.train + options.test
    if needed > share:
        sys.exit(f"benchmarks.memory: {IMAGES:,} images are {share} for each client, not {needed}")
    rows = [list(range(client * share, client * share + needed)) for client in range(options.clients)]
    lists = [{"train": own[: options.train], "test": own[options.train :]} for own in rows]
    partition = folder / "partition.json"
    partition.write_text(json.dumps({"clients": lists}), encoding="utf-8")
    return Experiment.from_mapping(
        {
            "method": "xfed",
            "dataset": "random-images",
            "random-images": {"samples": IMAGES, "classes": 100},
            "model": options.model,
            "clients": options.clients,
            "sample": options.cohort / options.clients,
            "partition": partition,
            "calibration": 0.0,
            "rounds": options.rounds,
            "epochs": 1,
            "eval_every": options.rounds,
            "workers": options.workers,
            "plugin": (RANDOM_IMAGES,),
            "out": folder / "run",
        }
    )


def processes(root: int) -> Iterator[int]:
    """Give a process and all its descendants."""
    yield root
    with suppress(OSError):
        for children in Path(f"/proc/{root}/task").glob("*/children"):
            for child in children.read_text(encoding="ascii").split():
                yield from processes(int(child))


def proportional(process: int) -> int:
    """Read a process's proportional set size in bytes; 0 for one that has just ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def peak(command: list[str], output: IO[str] | None = None) -> tuple[list[int], int]:
    """Run a command; give the sizes of its processes when together they were largest, and its exit code."""
    largest: list[int] = []
    with subprocess.Popen(command, stdout=output, stderr=output) as started:
        while started.poll() is None:
            sizes = [proportional(process) for process in processes(started.pid)]
            largest = max(largest, sizes, key=sum)
            time.sleep(INTERVAL)
    return largest, started.returncode


def usual_way(experiment: Experiment) -> int:
    """Compute the bytes of a model and momentum for every client."""
    network = experiment.network((3, 32, 32), 100)
    layout = Layout.of(network)
    return experiment.dealing.clients * 4 * (2 * layout.count(Parts.MODEL) + layout.count(Parts.STATISTICS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=10, help="clients per round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--train", type=int, default=128, help="training samples per client")
    parser.add_argument("--test", type=int, default=32, help="test samples per client")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--run-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_in is not None:
        running.run(experiment_of(options, options.run_in), progress=False)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        usual = usual_way(experiment_of(options, Path(folder)))
        begin = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:], "--run-in", folder]
        sizes, code = peak(command)
    if code:
        return code
    total = sum(sizes)
    each = ", ".join(f"{size / 1e6:,.0f} MB" for size in sizes)
    print(f"{options.rounds} rounds with {options.workers} workers took {time.perf_counter() - begin:.0f} s")
    print(f"processes at the peak, the main one first: {each}")
    print(
        f"the usual way, a model and momentum for each of {options.clients} clients: {usual / 1e9:.2f} GB, without data"
    )
    print(f"peak memory of all processes together: {total / 1e9:.2f} GB (mark: under {MOST_BYTES / 1e9:.0f} GB)")
    return int(total >= MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
