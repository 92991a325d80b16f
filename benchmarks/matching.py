"""How long the server takes to match teachers, beside the paper's table: `python -m benchmarks.matching`.

Measured is X-FED's own step at the end of a round, on random last exits of 1,290 numbers (128 channels, 10
classes): from what the server keeps of each sampled client (in memory here) to everyone's mixture, that is, the
cosines of the updates, the projection of every client's row and the mixing. Default settings, one thread, median
of several repetitions. Exit code 1 where a limit is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from statistics import median
from time import perf_counter

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from xfed.algorithms.xfed import XFed
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork, Exit
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.server import Server

PAPER = {10: 0.02, 20: 0.02, 50: 0.05, 100: 0.48, 200: 1.43, 500: None, 2000: None}
"""Seconds in the paper's table, by sampled clients."""
LIMITS = {200: 0.010, 2000: 2.0}
REPETITIONS = {2000: 5}  # all smaller ones: 41


class Memory:
    """What the server keeps per client, without a disk."""

    def __init__(self) -> None:
        self._tensors: dict[int, dict[str, Tensor]] = {}

    def get(self, client: int) -> dict[str, Tensor]:
        """Give what is kept for a client."""
        return dict(self._tensors.get(client, {}))

    def put(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Replace what is kept for a client."""
        self._tensors[client] = dict(tensors)

    def known(self) -> list[int]:
        """Give the clients in order."""
        return sorted(self._tensors)


def seconds(clients: int) -> float:
    network = EarlyExitNetwork([nn.Identity()], [Exit(128, 10)], [0])
    layout = Layout.of(network)
    assert layout.count(Parts.LAST_EXIT) == 1290
    initial = layout.bind(network, torch.device("cpu")).clone()
    subnetworks = Subnetworks(network, layout)
    server = Server(subnetworks, initial, initial.clone(), {}, Memory(), seed=0, population=clients)
    generator = torch.Generator().manual_seed(clients)
    everyone = list(range(clients))
    for client in everyone:
        trained, update = torch.randn(2, 1290, generator=generator)
        server.keep(client, trained=trained, update=update)
    algorithm = XFed()
    taken = []
    for _ in range(REPETITIONS.get(clients, 41) + 1):
        begin = perf_counter()
        mixed = algorithm._mixture(server, everyone, everyone)
        taken.append(perf_counter() - begin)
    assert mixed.shape == (clients, 1290)
    return median(taken[1:])  # the first one warms up


def main() -> int:
    torch.set_num_threads(1)
    with threadpool_limits(1), torch.no_grad():
        taken = {clients: seconds(clients) for clients in PAPER}
    print(f"{'clients':>8}  {'here, s':>8}  {'paper, s':>8}  {'limit, s':>8}")
    for clients, paper in PAPER.items():
        cells = [f"{value:8.2f}" if value else f"{'–':>8}" for value in (paper, LIMITS.get(clients))]
        print(f"{clients:>8,}  {taken[clients]:8.4f}  {'  '.join(cells)}")
    missed = [clients for clients, limit in LIMITS.items() if taken[clients] >= limit]
    verdict = " and ".join(f"{clients:,} clients matched in {1000 * taken[clients]:.1f} ms" for clients in LIMITS)
    print(verdict + (f"; over the limit: {', '.join(f'{clients:,}' for clients in missed)} clients" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
