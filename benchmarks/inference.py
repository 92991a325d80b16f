"""What leaving early saves in time: `python -m benchmarks.inference`.

ResNet-18 for 32 × 32 images and 100 classes, random weights. One sample to each exit in PyTorch (eager, stage by
stage), ONNX graphs per stage and one ONNX graph with nested `If`s, all taking turns in one loop: medians, shares of
the last exit's time, and the share of MACs beside them. Then a batch whose samples leave at different exits, with the
survivors compacted, against the same batch without exits. Preprocessing included everywhere. Exit code 1 unless both
ONNX forms are 1.3 × faster than PyTorch and take at most 0.3 of the last exit's time for the first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from xfed.data.dataset import Dataset
from xfed.export.bundle import Contents, write_bundle
from xfed.export.card import Card, ExitFigures
from xfed.export.policies import USUAL
from xfed.inference.runtime import EarlyExitRuntime
from xfed.models.costs import measure
from xfed.models.network import EarlyExitNetwork
from xfed.models.resnet import ResNet18
from xfed_runtime import Bundle, Policy
from xfed_runtime.answers import softmax

FASTER, SHARE = 1.3, 0.3
Times = NDArray[np.float64]


def in_turns(jobs: Sequence[Callable[[], object]], repetitions: int, warm_up: int = 3) -> Times:
    """Run all jobs again and again, one after the other; give the median ms of each."""
    taken = np.zeros((warm_up + repetitions, len(jobs)))
    for repetition in taken:
        for number, job in enumerate(jobs):
            begin = perf_counter()
            job()
            repetition[number] = 1000 * (perf_counter() - begin)
    return np.median(taken[warm_up:], axis=0)


def predictors(
    network: EarlyExitNetwork, data: Dataset, bundle: Bundle, threads: int
) -> dict[str, Callable[[NDArray[np.uint8], Policy], object]]:
    """Give the three ways to answer a raw batch."""
    eager = EarlyExitRuntime(network)
    stages, nested = (bundle.runtime(0, format, threads) for format in ("onnx-stages", "onnx-if"))
    return {
        "PyTorch, staged": lambda raw, policy: eager.predict(data.normalise(torch.from_numpy(raw)), policy),
        "ONNX, graph per stage": stages.predict,
        "ONNX, nested If": nested.predict,
    }


def one_sample(
    ways: Mapping[str, Callable[..., object]], raw: NDArray[np.uint8], exits: int, repetitions: int
) -> Times:
    """Time one sample to each exit, ways × exits."""
    policies = [Policy("fixed", exit=number) for number in range(1, exits + 1)]
    jobs = [lambda way=way, policy=policy: way(raw[:1], policy) for way in ways.values() for policy in policies]
    return in_turns(jobs, repetitions).reshape(len(ways), exits)


def halving(network: EarlyExitNetwork, data: Dataset, raw: NDArray[np.uint8]) -> Policy:
    """Make a policy under which about half of the samples leave at each exit."""
    with torch.no_grad():
        logits = network(data.normalise(torch.from_numpy(raw))).logits
    staying = np.arange(len(raw))
    thresholds = []
    for index in range(len(network.exits) - 1):
        confidence = softmax(logits[index].numpy()).max(axis=1)
        thresholds.append(float(np.median(confidence[staying])))
        staying = staying[confidence[staying] <= thresholds[-1]]
    return Policy("confidence", threshold=tuple(thresholds))


def main() -> int:
    parser = argparse.ArgumentParser(description="What leaving early saves in time.")
    parser.add_argument("--repetitions", type=int, default=200, help="samples per way and exit")
    parser.add_argument("--batch", type=int, default=64, help="samples in a batch")
    parser.add_argument("--batches", type=int, default=20, help="repetitions of the batch")
    parser.add_argument("--threads", type=int, default=1, help="threads of every way")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    network = ResNet18().build((3, 32, 32), 100, "all").eval()
    images = torch.randint(0, 256, (options.batch, 3, 32, 32), dtype=torch.uint8)
    data = Dataset("noise", images, torch.zeros(options.batch, dtype=torch.int64), tuple(map(str, range(100))))
    costs = measure(network, data.example())
    macs = [costs.leaving_at(index) for index in range(len(network.exits))]
    usual = {"default": {"policy": USUAL.to_json(), "macs": None, "accuracy": None}}
    raw = images.numpy()
    with tempfile.TemporaryDirectory() as folder:
        card = Card(data.name, "none", "resnet18", {}, [ExitFigures(each) for each in macs], 1, "nothing")
        contents = Contents(network, {0: {}}, data, macs, (usual, {}), card)
        write_bundle(contents, ["onnx-stages", "onnx-if"], Path(folder) / "bundle")
        ways = predictors(network, data, Bundle.open(Path(folder) / "bundle"), options.threads)
        times = one_sample(ways, raw, len(macs), options.repetitions)
        policy, last = halving(network, data, raw), Policy("fixed", exit=len(macs))
        spent = np.array(macs)[EarlyExitRuntime(network).predict(data.normalise(images), policy).exits].mean()
        by_batch = {name: ways[name] for name in list(ways)[:2]}
        jobs = [lambda way=way, rule=rule: way(raw, rule) for way in by_batch.values() for rule in (policy, last)]
        batches = in_turns(jobs, options.batches, 1).reshape(2, 2)
    print(f"{'one sample, ms (share)':<24}" + "".join(f"{f'exit {index + 1}':>16}" for index in range(len(macs))))
    for name, row in zip(ways, times, strict=True):
        print(f"{name:<24}" + "".join(f"{f'{value:.2f} ({value / row[-1]:.3f})':>16}" for value in row))
    print(f"{'share of MACs':<24}" + "".join(f"{f'({value / macs[-1]:.3f})':>16}" for value in macs))
    print(f"\nbatch of {options.batch}, about half leaving at each exit: {spent / macs[-1]:.3f} of the MACs")
    for name, (compacted, whole) in zip(by_batch, batches, strict=True):
        print(f"{name:<24}{compacted:10.1f} ms, without exits {whole:.1f} ms: {compacted / whole:.3f} of the time")
    faster = times[0, -1] / times[1:, -1]
    first = times[1:, 0] / times[1:, -1]
    good = faster.min() >= FASTER and first.max() <= SHARE
    print(
        f"\nONNX is {faster[0]:.2f} × (stages) and {faster[1]:.2f} × (nested If) as fast as PyTorch; "
        f"exit 1 takes {first[0]:.3f} and {first[1]:.3f} of the last exit's time" + ("" if good else "; over the limit")
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
