"""FedAvg in FL-bench: its server, serial trainer and client; no evaluation, and clients are chosen by us."""

from __future__ import annotations

import json
import os
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import torch
from contest import Clock, Network, arguments, joint_loss

work, repository = arguments()
sys.path.insert(0, str(repository))
os.chdir(work.folder)

from data.utils.datasets import BaseDataset  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from src.server import fedavg  # noqa: E402
from src.utils.functional import parse_args  # noqa: E402
from src.utils.models import DecoupledModel  # noqa: E402

DATA = "cifar10"  # whose means and deviations it normalises with
s = work.settings
clients, rounds = len(work.train), len(work.cohorts)
everyone = list(range(clients))
folder = work.folder / "data" / DATA
folder.mkdir(parents=True)
(folder / "args.json").write_text(json.dumps({"split": "sample", "monitor_window_name_suffix": ""}), encoding="utf-8")
partition = {
    "separation": {"train": everyone, "test": everyone, "val": [], "total": clients},
    "data_indices": [{"train": rows.tolist(), "val": [], "test": []} for rows in work.train],
}
(folder / "partition.pkl").write_bytes(pickle.dumps(partition))


class Model(DecoupledModel):
    """The contest's network in FL-bench's clothes."""

    def __init__(self) -> None:
        super().__init__()
        network = Network.of(work)
        self.base, self.classifier = network, torch.nn.Identity()


class Server(fedavg.FedAvgServer):
    """FedAvg with our network and samples."""

    def init_model(self, **_: Any) -> None:
        super().init_model(model=Model())

    def get_dataset(self) -> BaseDataset:
        data = torch.from_numpy(work.images).float()
        classes = list(range(int(work.labels.max()) + 1))
        return BaseDataset(data, torch.from_numpy(work.labels), classes, **self.get_dataset_transforms())

    def train_one_round(self) -> None:
        super().train_one_round()
        clock.note()

    def display_metrics(self) -> None:
        pass


clock = Clock()
fedavg.FLBENCH_ROOT = work.folder
fedavg.HydraConfig = SimpleNamespace(get=lambda: SimpleNamespace(runtime=SimpleNamespace(output_dir=work.folder)))
config = OmegaConf.load(repository / "config" / "defaults.yaml")
config.dataset.name = DATA
config.optimizer.update({"lr": s["rate"], "momentum": s["momentum"], "weight_decay": s["weight_decay"]})
config.common.update(
    {
        "global_epoch": rounds,
        "local_epoch": s["epochs"],
        "batch_size": s["batch_size"],
        "join_ratio": work.cohorts.shape[1] / clients,
        "client_side_evaluation": False,
        "use_cuda": False,
        "save_log": False,
        "save_learning_curve_plot": False,
        "save_metrics": False,
    }
)
config.common.test.client.interval = -1
server = Server(parse_args(config, "fedavg", None))
server.trainer.worker.criterion = joint_loss
server.client_sample_stream = work.cohorts.tolist()
clock.note()
server.train()
clock.write(work.folder)
