"""FedAvg in pfl-research: its simulated backend and local loop in one process; no evaluation, clients chosen by us."""

from __future__ import annotations

import sys

import torch
from contest import Clock, Network, arguments, joint_loss
from torch import Tensor

work, repository = arguments()
sys.path.insert(0, str(repository))

from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.aggregate.weighting import WeightByDatapoints  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.pytorch import PyTorchTensorDataset  # noqa: E402
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402


class Model(Network):
    """The contest's network with the two functions that pfl-research asks for."""

    def loss(self, inputs: Tensor, labels: Tensor, eval: bool = False) -> Tensor:
        self.train(not eval)
        return joint_loss(self(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor, eval: bool = True) -> dict[str, float]:
        return {}


class Noting(TrainingProcessCallback):  # type: ignore[misc]
    """Takes a note after every round."""

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        clock.note()
        return False, Metrics()


s = work.settings
inputs, labels = torch.from_numpy(work.inputs()), torch.from_numpy(work.labels)
rows = [torch.from_numpy(own) for own in work.train]
order = iter(work.cohorts.flatten().tolist())
data = FederatedDataset(
    lambda client: PyTorchTensorDataset((inputs[rows[client]], labels[rows[client]]), user_id=str(client)),
    lambda: next(order),
)
network = Model.of(work)
model = PyTorchModel(network, work.sgd(), torch.optim.SGD(network.parameters(), 1.0))
clock = Clock()
clock.note()
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=len(work.cohorts),
        evaluation_frequency=len(work.cohorts) + 1,
        train_cohort_size=work.cohorts.shape[1],
        val_cohort_size=0,
    ),
    backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
    model=model,
    model_train_params=NNTrainHyperParams(
        local_batch_size=s["batch_size"], local_num_epochs=s["epochs"], local_learning_rate=s["rate"]
    ),
    model_eval_params=NNEvalHyperParams(local_batch_size=s["batch_size"]),
    callbacks=[Noting()],
)
clock.write(work.folder)
