"""What fewer bits cost and save: `python -m benchmarks.precision RUN [RUN ...]`.

Exports each finished run, for all or some clients, in fp32, fp16 and int8. Accuracy of every exit on the clients' test
samples beside PyTorch's; then the time of one sample to the last exit, all precisions taking turns in one loop, and
the bytes of one client's network, as ratios to fp32. The run's data must be at hand, and calibration samples set
aside. Exit code 1 where an exit loses more than one point of accuracy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.inference import in_turns
from xfed.cli.options import parse_clients
from xfed.export.bundle import export
from xfed.export.precision import PRECISIONS, Precision
from xfed.running import Run, open_run
from xfed_runtime import Bundle, Policy

MOST_LOST = 0.01


def bytes_of(bundle: Bundle, client: int) -> int:
    """Sum up what a device must hold for one client: its stages, and the weights that they refer to."""
    files = bundle.manifest.clients[client]
    names = [*files.networks["onnx-stages"], files.weights, "networks/weights.bin"]
    return sum(bundle.manifest.files[name].bytes for name in names if name is not None)


def judge(run: Run, clients: list[int], repetitions: int) -> float:
    """Export a run in all precisions and print what they come to; give the most accuracy that an exit lost."""
    lost, exits = 0.0, []
    ready, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in PRECISIONS:
            path = Path(folder) / precision
            card = export(run, clients, ["onnx-stages"], path, precision)
            alone = path
            if len(clients) > 1:  # a client by itself: others' weights do not count
                alone = Path(folder) / f"{precision}-alone"
                export(run, clients[:1], ["onnx-stages"], alone, precision)
            ready[precision] = Bundle.open(path).runtime(clients[0])
            sizes[precision] = bytes_of(Bundle.open(alone), clients[0])
            if precision != "fp32":
                both = np.array([each.stored for each in card.exits])
                exits.append((precision, both))
                lost = max(lost, float((both[:, 0] - both[:, 1]).max()))
        example, last = ready["fp32"].inputs.example(), Policy("fixed", exit=len(ready["fp32"].macs))
        jobs = [lambda each=each: each.predict(example, last) for each in ready.values()]
        times = dict(zip(PRECISIONS, in_turns(jobs, repetitions), strict=True))
    print(f"\n{run.experiment.model} on {run.experiment.dataset}, {run.experiment.method}, {len(clients)} clients")
    print(f"{'exit':<8}{'fp32':>10}" + "".join(f"{precision:>10}" for precision, _ in exits))
    for index in range(len(exits[0][1])):
        row = [exits[0][1][index, 0], *(both[index, 1] for _, both in exits)]
        print(f"{index + 1:<8}" + "".join(f"{value:>10.2%}" for value in row))
    for name, values in (("time", times), ("bytes", sizes)):
        print(f"{name:<8}" + "".join(f"{_ratio(values, precision):>10.3f}" for precision in PRECISIONS))
    return lost


def _ratio(values: dict[Precision, float] | dict[Precision, int], precision: Precision) -> float:
    return values[precision] / values["fp32"]


def main() -> int:
    parser = argparse.ArgumentParser(description="What fewer bits cost and save.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--clients", default="all", help="such as 0-9")
    parser.add_argument("--repetitions", type=int, default=300, help="samples that are timed")
    options = parser.parse_args()
    runs = [open_run(path) for path in options.runs]
    lost = max(judge(run, parse_clients(options.clients, run.experiment.clients), options.repetitions) for run in runs)
    print(
        f"\nat most {100 * lost:.2f} points of accuracy lost at any exit" + ("" if lost <= MOST_LOST else ": too many")
    )
    return 0 if lost <= MOST_LOST else 1


if __name__ == "__main__":
    sys.exit(main())
