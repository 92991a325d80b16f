"""Federated rounds as a bare PyTorch loop: what `benchmarks.round` holds xfed against. Imports nothing of xfed.

One single-threaded process per core with a resident network and the images in shared memory; clients, their batch
orders, the exits that train and who works on which core come as data. Kernels are the fast ones: channels_last, fused
SGD, the pool before the ReLU, images normalised from uint8 as they are gathered, an average pool whose gradient is
never spread out in memory, freed memory kept in the process. No messages, streams, meters, states on disk or
checkpoints. X-FED adds its own arithmetic: one forward pass of the frozen teacher, distillation into the selected
shallow exits, and the mixing of last exits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

STAGES = 3
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
LAMBDA, TEMPERATURE, MU = 1.0, 2.0, 0.6
Arrays = list[NDArray[np.float32]]


@dataclass(frozen=True)
class Work:
    """One client's part of a round; `start` holds the convolutions' weights and biases, then the exits'."""

    start: Arrays
    rows: NDArray[np.int64]
    orders: NDArray[np.int64]
    """Positions among the rows, epoch by epoch."""
    rate: float
    batch_size: int
    teacher_batch: int
    exits: Sequence[int]
    distils: bool


class Network(nn.Module):
    """Three convolutions, an exit after each."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(c, width, 3) for c in [3, *[width] * (STAGES - 1)])
        self.exits = nn.ModuleList(nn.Linear(width, classes) for _ in range(STAGES))

    def forward(self, maps: Tensor, exits: Sequence[int]) -> dict[int, Tensor]:
        """Give the logits of some exits."""
        logits = {}
        for index, convolution in enumerate(self.convolutions):
            maps = F.relu(F.max_pool2d(convolution(maps), 2))
            if index in exits:
                pixels = maps.flatten(2)
                logits[index] = self.exits[index](pixels.sum(2) / pixels.shape[2])
        return logits


def train(network: Network, images: Tensor, labels: Tensor, work: Work) -> Arrays:
    """Train one client and give its parameters."""
    with torch.no_grad():
        for parameter, array in zip(network.parameters(), work.start, strict=True):
            parameter.copy_(torch.from_numpy(array))
    rows = torch.from_numpy(work.rows)
    students = [j for j in work.exits if j < STAGES - 1] if work.distils else []
    if students:
        last, pieces = STAGES - 1, rows.split(work.teacher_batch)
        with torch.no_grad():
            teacher = torch.cat([network(gather(images, piece), [last])[last] for piece in pieces])
    trained = [*network.convolutions.parameters()]
    trained += [parameter for j in work.exits for parameter in network.exits[j].parameters()]
    optimizer = torch.optim.SGD(trained, lr=work.rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True)
    for order in torch.from_numpy(work.orders):
        for positions in order.split(work.batch_size):
            chosen = rows[positions]
            logits = network(gather(images, chosen), work.exits)
            target = labels[chosen]
            loss = sum(F.cross_entropy(z, target) for z in logits.values()) / STAGES
            if students:
                loss = loss + LAMBDA * sum(divergence(teacher[positions], logits[j]) for j in students)
            for parameter, gradient in zip(trained, torch.autograd.grad(loss, trained), strict=True):
                parameter.grad = gradient.contiguous()  # fused SGD reads both as flat memory
            optimizer.step()
    return [parameter.detach().numpy().copy() for parameter in network.parameters()]


def gather(images: Tensor, rows: Tensor) -> Tensor:
    """Take images as the network wants them: float32 in [−1, 1], a pixel's channels side by side."""
    batch = images.index_select(0, rows).to(torch.float32)
    return batch.mul_(1 / 127.5).sub_(1.0).contiguous(memory_format=torch.channels_last)


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Compute τ² KL(teacher ‖ student) at temperature τ."""
    answers = (F.log_softmax(logits / TEMPERATURE, dim=1) for logits in (student, teacher))
    return F.kl_div(*answers, reduction="batchmean", log_target=True) * TEMPERATURE**2


def serve(connection: multiprocessing.connection.Connection, images: Tensor, labels: Tensor, width: int) -> None:
    """Train the clients of one core, round after round: the main function of a process."""
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 2**30)
        mallopt(-1, 2**30)
    torch.set_num_threads(1)
    network = Network(width, int(labels.max()) + 1)
    with suppress(EOFError):
        while True:
            connection.send([train(network, images, labels, work) for work in connection.recv()])


class Cores:
    """One process per core."""

    def __init__(self, count: int, images: Tensor, labels: Tensor, width: int) -> None:
        context = multiprocessing.get_context("spawn")
        images.share_memory_()
        labels.share_memory_()
        self._ends = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            self._processes.append(context.Process(target=serve, args=(theirs, images, labels, width), daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._ends.append(ours)

    def train(self, works: Sequence[Work]) -> list[Arrays]:
        """Train clients: the largest first, each on the core with the least to do so far."""
        shares: list[list[int]] = [[] for _ in self._ends]
        for number in sorted(range(len(works)), key=lambda i: -len(works[i].rows)):
            min(shares, key=lambda share: sum(len(works[i].rows) for i in share)).append(number)
        for end, share in zip(self._ends, shares, strict=True):
            end.send([works[i] for i in share])
        trained: dict[int, Arrays] = {}
        for end, share in zip(self._ends, shares, strict=True):
            trained.update(zip(share, end.recv(), strict=True))
        return [trained[i] for i in range(len(works))]

    def close(self) -> None:
        """End the processes."""
        for end, process in zip(self._ends, self._processes, strict=True):
            end.close()
            process.join()


@dataclass
class FedAvg:
    """The server of FedAvg: one model, averaged by numbers of samples."""

    model: Arrays
    distils = False

    def start(self, client: int) -> Arrays:
        """Give what a client trains from."""
        return self.model

    def round(self, cores: Cores, clients: Sequence[int], works: Sequence[Work]) -> None:
        """Train the clients and take their models in; `works` come without a start."""
        begun = [replace(w, start=self.start(c), distils=self.distils) for c, w in zip(clients, works, strict=True)]
        self.take(clients, [len(work.rows) for work in works], cores.train(begun))

    def take(self, clients: Sequence[int], sizes: Sequence[int], trained: Sequence[Arrays]) -> None:
        """Average all parameters."""
        self.model = average(trained, sizes)


@dataclass
class XFed(FedAvg):
    """The server of X-FED, and what its clients keep: the backbone is averaged, last exits are mixed."""

    personal: dict[int, Arrays] = field(default_factory=dict)
    """Exits by client: shallow ones as trained, the last one as mixed."""
    distils = True

    def start(self, client: int) -> Arrays:
        """Put the shared backbone and the client's own exits together."""
        return self.model[: 2 * STAGES] + self.personal.get(client, self.model[2 * STAGES :])

    def take(self, clients: Sequence[int], sizes: Sequence[int], trained: Sequence[Arrays]) -> None:
        """Average the backbone; mix the last exits of clients whose exits changed alike (the paper's matching)."""
        last = np.stack([flat(arrays[-2:]) for arrays in trained])
        updates = (last - np.stack([flat(self.start(client)[-2:]) for client in clients])).astype(np.float64)
        lengths = np.linalg.norm(updates, axis=1)
        cosines = np.clip(updates @ updates.T / np.outer(lengths, lengths), -1, 1)
        np.fill_diagonal(cosines, 1.0)
        weights = project_on_simplex(1 / len(clients) + cosines / (2 * MU))
        mixed = torch.from_numpy(weights).float() @ torch.from_numpy(last)
        for client, arrays, row in zip(clients, trained, mixed.numpy(), strict=True):
            cut = arrays[-2].size
            self.personal[client] = [*arrays[2 * STAGES : -2], row[:cut].reshape(arrays[-2].shape), row[cut:]]
        self.model = average([arrays[: 2 * STAGES] for arrays in trained], sizes) + self.model[2 * STAGES :]


def flat(arrays: Arrays) -> NDArray[np.float32]:
    """Lay arrays end to end."""
    return np.concatenate([array.ravel() for array in arrays])


def average(models: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
    """Average models weighted by numbers of samples."""
    sums = [np.zeros(array.shape) for array in models[0]]
    for model, size in zip(models, sizes, strict=True):
        for total, array in zip(sums, model, strict=True):
            total += size * array.astype(np.float64)
    return [(total / sum(sizes)).astype(np.float32) for total in sums]


def project_on_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Project each row onto {k ≥ 0, Σ k = 1}."""
    rows = rows - rows.max(axis=1, keepdims=True)
    falling = -np.sort(-rows, axis=1)
    shifts = (falling.cumsum(axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (falling > shifts).sum(axis=1) - 1
    return np.maximum(rows - shifts[np.arange(len(rows)), last][:, None], 0)
