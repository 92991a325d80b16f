"""FedAvg in the published code of X-FED's authors: its server and clients; no evaluation, clients chosen by us."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from contest import STAGES, Clock, Network, arguments

work, repository = arguments()
sys.path.insert(0, str(repository))
os.chdir(work.write_npz_per_client("cifar10"))

from trainer import base  # noqa: E402
from trainer.alg.fedavg import Client, Server  # noqa: E402

s = work.settings
base.load_model = lambda args: Network.of(work)
options = SimpleNamespace(
    dataset="cifar10",
    device="cpu",
    lr=s["rate"],
    bs=s["batch_size"],
    epoch=s["epochs"],
    gamma=1.0,
    lag_level=1,
    mode="jt",
    ee_num=STAGES,
    total_num=len(work.train),
    sr=work.cohorts.shape[1] / len(work.train),
    rnd=len(work.cohorts),
)
server = Server(0, options, [Client(client, options) for client in range(len(work.train))])
clock, cohorts = Clock(), iter(work.cohorts)


def sample() -> None:
    server.sampled_clients = [server.clients[client] for client in next(cohorts)]
    total = sum(len(client.dataset_train) for client in server.sampled_clients)
    for client in server.sampled_clients:
        client.weight = len(client.dataset_train) / total


server.sample = sample
clock.note()
for number in range(server.total_round):
    server.round = number
    server.run()
    clock.note()
clock.write(work.folder)
