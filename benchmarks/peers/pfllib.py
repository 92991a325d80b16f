"""FedAvg in PFLlib: its server and clients; only evaluation is left out, and clients are chosen by us."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from contest import Clock, Network, arguments, joint_loss

work, repository = arguments()
sys.path.insert(0, str(repository / "system"))
os.chdir(work.write_npz_per_client("work"))

from flcore.servers.serveravg import FedAvg  # noqa: E402

s = work.settings
clients, rounds = len(work.train), len(work.cohorts)
server = FedAvg(
    SimpleNamespace(
        device="cpu",
        dataset="work",
        model=Network.of(work),
        num_classes=int(work.labels.max()) + 1,
        global_rounds=rounds - 1,  # it runs one more
        local_epochs=s["epochs"],
        batch_size=s["batch_size"],
        local_learning_rate=s["rate"],
        learning_rate_decay=False,
        learning_rate_decay_gamma=1.0,
        num_clients=clients,
        join_ratio=work.cohorts.shape[1] / clients,
        random_join_ratio=False,
        few_shot=0,
        algorithm="FedAvg",
        time_select=False,
        goal="time",
        time_threthold=float("inf"),
        save_folder_name="items",
        top_cnt=rounds,
        auto_break=False,
        eval_gap=rounds + 1,
        client_drop_rate=0.0,
        train_slow_rate=0.0,
        send_slow_rate=0.0,
        dlg_eval=False,
        dlg_gap=rounds,
        batch_num_per_client=1,
        num_new_clients=0,
        fine_tuning_epoch_new=0,
    ),
    0,
)
for client in server.clients:
    client.loss = joint_loss
clock, cohorts = Clock(), iter(work.cohorts)
aggregate = server.aggregate_parameters


def aggregate_and_note() -> None:
    aggregate()
    clock.note()


server.select_clients = lambda: [server.clients[client] for client in next(cohorts)]
server.aggregate_parameters = aggregate_and_note
server.evaluate = server.save_results = server.save_global_model = lambda: None
server.rs_test_acc = [0.0]
clock.note()
server.train()
clock.write(work.folder)
