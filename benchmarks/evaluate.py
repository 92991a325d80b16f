"""What evaluating clients in one pass saves: `python -m benchmarks.evaluate`.

100 clients on one backbone, each with exits of its own (random numbers, CIFAR-10 shape), are evaluated as a run does
it, in groups that share passes over the backbone, and one after another. Once with the test samples of CIFAR-10 dealt
to 100 clients, once with few samples each, where passes of one client leave the kernels half empty. One thread,
median of interleaved repetitions. Exit code 1 where an answer differs although its two largest logits are more than
1e-5 apart.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from xfed.assembly import build_host
from xfed.engines.allocator import keep_freed_memory

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition, Split
from xfed.evaluation.accuracy import Evaluation, evaluate
from xfed.experiment import Experiment
from xfed.federation.host import Host, Task
from xfed.federation.plan import Plan
from xfed.models.parts import Parts
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message

CLEAR = 1e-5


def make_host(clients: int, samples: int, width: int, folder: Path) -> Host:
    generator = torch.Generator().manual_seed(1)
    count = clients * (samples + 1)
    inputs = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    dataset = Dataset("random", inputs, labels, tuple("0123456789"))
    owned = np.arange(count).reshape(clients, samples + 1)
    nothing = np.empty(0, dtype=np.int64)
    partition = Partition.of(Split(row[:1], nothing, row[1:]) for row in owned)
    values = {"method": "fedper", "dataset": "cifar10", "clients": clients, "convnet.width": width}
    return build_host(Experiment.from_mapping(values), folder, partition, dataset)


def members(host: Host, clients: range) -> Iterator[tuple[Client, Personal]]:
    """Give clients that share the backbone and have trained their own exits."""
    shared = host.trainer.layout.pack(host.initial, Parts.BACKBONE)
    for number in clients:
        client = host.client(Task(number, 1, Message(), None))
        generator = torch.Generator().manual_seed(number)
        exits = host.trainer.layout.pack(host.initial, Parts.EXITS)
        yield (
            client,
            Personal(shared, {n: t + 0.1 * torch.randn(t.shape, generator=generator) for n, t in exits.items()}),
        )


def compare(clients: int, samples: int, width: int, repetitions: int) -> tuple[float, bool]:
    with tempfile.TemporaryDirectory() as folder:
        host = make_host(clients, samples, width, Path(folder))
        groups = Plan(1, 1, 1, 1, [1] * clients, [samples] * clients, 1).groups
        everyone = list(members(host, range(clients)))

        def together() -> dict[int, Evaluation]:
            found: dict[int, Evaluation] = {}
            for group in groups:
                found |= evaluate([everyone[client] for client in group], calibration=False)
            return found

        def one_by_one() -> dict[int, Evaluation]:
            found: dict[int, Evaluation] = {}
            for member in everyone:
                found |= evaluate([member], calibration=False)
            return found

        taken: dict[str, list[float]] = {"together": [], "one by one": []}
        for _ in range(repetitions + 1):
            results = []
            for name, way in (("together", together), ("one by one", one_by_one)):
                begin = process_time()
                results.append(way())
                taken[name].append(process_time() - begin)
        medians = {name: median(seconds[1:]) for name, seconds in taken.items()}  # the first warms up
        agree = all(same_answers(host, everyone[c], results[0][c], results[1][c]) for c in range(clients))
    factor = medians["one by one"] / medians["together"]
    print(
        f"{clients} clients × {samples} samples, width {width}: together {medians['together']:.3f} s, "
        f"one by one {medians['one by one']:.3f} s of CPU, factor {factor:.2f}"
    )
    return factor, agree


def same_answers(host: Host, member: tuple[Client, Personal], one: Evaluation, other: Evaluation) -> bool:
    """Compare answers wherever the two largest logits are clearly apart."""
    client, personal = member
    outputs = host.trainer.outputs(client.model(personal.shared, personal.own), client.data.test, range(client.exits))
    for j, logits in outputs.logits.items():
        first, second = logits.topk(2, dim=1).values.unbind(1)
        clear = (first - second > CLEAR).numpy()
        if not np.array_equal(one.test.own.prediction[clear, j], other.test.own.prediction[clear, j]):
            return False
        if not np.array_equal(one.test.own.prediction[clear, j], logits.argmax(1).numpy()[clear]):
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as in a worker
    with threadpool_limits(1):
        found = [compare(options.clients, samples, options.width, options.repetitions) for samples in (150, 10)]
    factors = " and ".join(f"{factor:.2f}" for factor, _ in found)
    agree = all(same for _, same in found)
    print(f"answers {'agree' if agree else 'DIFFER'}; one pass is {factors} times as fast as one client after another")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
