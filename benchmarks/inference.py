"""What leaving early saves in time: `python -m benchmarks.inference`.

ResNet-18 for 32 × 32 images and 100 classes, random weights. One sample to each exit in PyTorch (eager, stage by
stage), ONNX graphs per stage, one client's or shared by clients, and one ONNX graph with nested `If`s, all taking turns
in one loop: medians, shares of the last exit's time, and the share of MACs beside them. Then a batch whose samples
leave at different exits, with the survivors compacted, against the same batch without exits. Preprocessing included
everywhere. Then the memory that each further client takes, with graphs of its own and shared. Exit code 1 unless the
ONNX forms are 1.3 × faster than PyTorch and take at most 0.3 of the last exit's time for the first, and a client that
shares takes at most a tenth of the memory of one that does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from xfed.bundles.bundle import Contents, write_bundle
from xfed.bundles.card import Card, ExitFigures
from xfed.bundles.policies import USUAL
from xfed.data.dataset import Dataset
from xfed.inference.runtime import EarlyExitRuntime
from xfed.models.costs import count_costs
from xfed.models.network import EarlyExitNetwork
from xfed.models.resnet import ResNet18
from xfed_runtime import Bundle, Policy
from xfed_runtime.answers import softmax

FASTER, SHARE, MEMORY = 1.3, 0.3, 0.1
CLIENTS = 5
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
    """Give the ways to answer a raw batch."""
    eager = EarlyExitRuntime(network)
    stages, nested = (bundle.runtime(0, format, threads) for format in ("onnx-stages", "onnx-if"))
    return {
        "PyTorch, staged": lambda raw, policy: eager.predict(data.normalise(torch.from_numpy(raw)), policy),
        "ONNX, graph per stage": stages.predict,
        "ONNX, nested If": nested.predict,
        "ONNX, shared stages": bundle.runtime(0, threads=threads, sharing=True).predict,
    }


def memory_of_a_client(path: Path, sharing: bool) -> float:
    """Load clients one after another in a process of its own; give the MB that each after the first takes."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_memory_of_a_client, path, sharing).result()


def _memory_of_a_client(path: Path, sharing: bool) -> float:
    bundle = Bundle.open(path)
    example = bundle.inputs.example()
    loaded, held = [], []
    for client in bundle.clients:
        loaded.append(bundle.runtime(client, sharing=sharing))
        loaded[-1].predict(example, Policy("fixed", exit=len(bundle.macs)))
        held.append(_resident_mb())
    return (held[-1] - held[0]) / (len(held) - 1)


def _resident_mb() -> float:
    """Give what this process holds in memory, without pages of files that the system may drop."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024 / 1e6


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
    costs = count_costs(network, data.card.example())
    macs = [costs.leaving_at(index) for index in range(len(network.exits))]
    usual = {"default": {"policy": USUAL.to_json(), "macs": None, "accuracy": None}}
    raw = images.numpy()
    with tempfile.TemporaryDirectory() as folder:
        card = Card(data.name, "none", "resnet18", {}, [ExitFigures(each) for each in macs], 1, "nothing")
        own = {n: t for n, t in network.state_dict().items() if n.startswith("exits.") or "running_" in n}
        contents = Contents(network, dict.fromkeys(range(CLIENTS), own), data, macs, (usual, {}), card)
        write_bundle(contents, ["onnx-stages", "onnx-if"], Path(folder) / "bundle")
        ways = predictors(network, data, Bundle.open(Path(folder) / "bundle"), options.threads)
        times = one_sample(ways, raw, len(macs), options.repetitions)
        policy, last = halving(network, data, raw), Policy("fixed", exit=len(macs))
        spent = np.array(macs)[EarlyExitRuntime(network).predict(data.normalise(images), policy).exits].mean()
        by_batch = {name: ways[name] for name in list(ways)[:2]}
        jobs = [lambda way=way, rule=rule: way(raw, rule) for way in by_batch.values() for rule in (policy, last)]
        batches = in_turns(jobs, options.batches, 1).reshape(2, 2)
        alone, sharing = (memory_of_a_client(Path(folder) / "bundle", sharing) for sharing in (False, True))
    print(f"{'one sample, ms (share)':<24}" + "".join(f"{f'exit {index + 1}':>16}" for index in range(len(macs))))
    for name, row in zip(ways, times, strict=True):
        print(f"{name:<24}" + "".join(f"{f'{value:.2f} ({value / row[-1]:.3f})':>16}" for value in row))
    print(f"{'share of MACs':<24}" + "".join(f"{f'({value / macs[-1]:.3f})':>16}" for value in macs))
    print(f"\nbatch of {options.batch}, about half leaving at each exit: {spent / macs[-1]:.3f} of the MACs")
    for name, (compacted, whole) in zip(by_batch, batches, strict=True):
        print(f"{name:<24}{compacted:10.1f} ms, without exits {whole:.1f} ms: {compacted / whole:.3f} of the time")
    faster = times[0, -1] / times[1:, -1]
    first = times[1:, 0] / times[1:, -1]
    good = faster.min() >= FASTER and first.max() <= SHARE and sharing <= MEMORY * alone
    print(
        f"\nONNX is {faster[0]:.2f} × (stages), {faster[1]:.2f} × (nested If) and {faster[2]:.2f} × (shared) as fast "
        f"as PyTorch; exit 1 takes {first[0]:.3f}, {first[1]:.3f} and {first[2]:.3f} of the last exit's time"
    )
    print(
        f"a further client takes {alone:.1f} MB with graphs of its own, {sharing:.2f} MB where they are shared"
        + ("" if good else "; over the limit")
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
