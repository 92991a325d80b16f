"""One round of two clients and two parameters per method, by hand: each pins the method's aggregation rule.

The network has one backbone number φ and one exit number h. The server starts from (φ, h) = (0, 0).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor, nn

from tests.bits import Memory
from xfed.algorithms.fedamp import heuristic_attention
from xfed.algorithms.fedpac import combine
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.algorithm import Algorithm, methods
from xfed.protocol.cohort import Cohort
from xfed.protocol.message import Message
from xfed.protocol.server import Server


class OneNumber(nn.Module):
    """An exit with a single weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)


@pytest.fixture
def server() -> Server:
    network = EarlyExitNetwork([nn.Linear(1, 1, bias=False)], [OneNumber()], [0])
    layout = Layout.of(network)
    initial = layout.bind(network, torch.device("cpu"))
    initial.parameters.zero_()
    return Server(Subnetworks(network, layout), initial.clone(), initial.clone(), {}, Memory(), seed=1, population=10)


def method(name: str, **settings: object) -> Algorithm:
    component = methods.get(name)
    return component(component.resolve(settings))


def upload(algorithm: Algorithm, phi: float, h: float, samples: int, **more: Tensor) -> Message:
    numbers = {Parts.BACKBONE: phi, Parts.LAST_EXIT: h}
    tensors = {part.key: torch.tensor([float(numbers[part])]) for part in numbers if part in algorithm.travels}
    return Message({**tensors, **more}, {"samples": samples})


def finish(algorithm: Algorithm, server: Server, first: Message, second: Message) -> tuple[float, float]:
    models = algorithm.model_for(server, [0, 1], "training")
    uploads = algorithm.expect(server, models)
    uploads.add(0, first)
    uploads.add(1, second)
    algorithm.aggregate(server, uploads)
    return tuple(server.layout.gather(server.model, part).item() for part in (Parts.BACKBONE, Parts.LAST_EXIT))


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "ditto", "fedrod", "scalefl"])
def test_averages_of_everything_by_size(server: Server, name: str) -> None:
    algorithm = method(name)
    # p = (1/4, 3/4): φ = 1/4 · 1 + 3/4 · 5 = 4; h = 1/4 · 2 + 3/4 · 6 = 5
    assert finish(algorithm, server, upload(algorithm, 1, 2, 1), upload(algorithm, 5, 6, 3)) == (4.0, 5.0)


@pytest.mark.parametrize("name", ["fedper", "fedrep", "fedbabu"])
def test_averages_of_the_backbone_alone(server: Server, name: str) -> None:
    algorithm = method(name)
    first, second = upload(algorithm, 1, 2, 1), upload(algorithm, 5, 6, 3)
    assert set(first.tensors) == {"backbone"}
    assert finish(algorithm, server, first, second) == (4.0, 0.0), "the exit is nobody's but the clients'"


def test_local_aggregates_nothing(server: Server) -> None:
    algorithm = method("local")
    assert finish(algorithm, server, upload(algorithm, 1, 2, 1), upload(algorithm, 5, 6, 3)) == (0.0, 0.0)


def test_fedamp_heuristic(server: Server) -> None:
    algorithm = method("fedamp", own=0.7)
    finish(algorithm, server, upload(algorithm, 1, 0, 1), upload(algorithm, 1, 1, 3))
    # With two clients the softmax over the others is 1, so ξ = (0.7, 0.3): u_1 = 0.7 (1, 0) + 0.3 (1, 1) = (1, 0.3)
    # and u_2 = 0.3 (1, 0) + 0.7 (1, 1) = (1, 0.7). Sample counts play no part.
    sent = algorithm.model_for(server, [0, 1, 2], "training")
    exits = [sent[client].tensors["last_exit"].item() for client in range(3)]
    assert exits == pytest.approx([0.3, 0.7, 0.0])
    assert [sent[client].tensors["backbone"].item() for client in range(3)] == pytest.approx([1.0, 1.0, 0.0])
    assert algorithm.model_for(server, [0], "evaluation")[0].tensors == {}, "a client is evaluated with its own model"


def test_fedamp_exact(server: Server) -> None:
    algorithm = method("fedamp", attention="exact", sigma=2.0, alpha=0.5)
    finish(algorithm, server, upload(algorithm, 1, 0, 1), upload(algorithm, 1, 1, 3))
    # ‖w_1 − w_2‖² = 1: ξ_12 = 0.5 · exp(−1/2) / 2 = 0.1516327; u_1 = (1, 0.1516327), u_2 = (1, 1 − 0.1516327).
    sent = algorithm.model_for(server, [0, 1], "training")
    weight = 0.25 * math.exp(-0.5)
    assert sent[0].tensors["last_exit"].item() == pytest.approx(weight)
    assert sent[1].tensors["last_exit"].item() == pytest.approx(1 - weight)


def test_pfedgraph(server: Server) -> None:
    algorithm = method("pfedgraph", alpha=0.8)
    finish(algorithm, server, upload(algorithm, 1, 0, 1), upload(algorithm, 1, 1, 3))
    # w⁰ = 0, so c_12 = cos((1,0), (1,1)) = 0.70711; p = (0.25, 0.75). Row 1: project (0.25 + 1/1.6, 0.75 + 0.70711/1.6)
    # = (0.875, 1.19194): both give up (2.06694 − 1)/2 = 0.53347: x_1 = (0.34153, 0.65847). Row 2: project (0.69194,
    # 1.375): x_2 = (0.15847, 0.84153). Mixture_i = (1, x_i2).
    delivered = algorithm.model_for(server, [0, 1], "evaluation")
    assert [delivered[c].tensors["last_exit"].item() for c in (0, 1)] == pytest.approx([0.65847, 0.84153], abs=1e-5)
    assert delivered[0].tensors["backbone"].item() == pytest.approx(1.0)
    # r_1 = 0.34153 (1, 0) / 1 + 0.65847 (1, 1) / √2 = (0.80714, 0.46561)
    sent = algorithm.besides(server, Cohort(2, 9, (0,)))[0]
    assert sent.tensors["target.backbone"].item() == pytest.approx(0.80714, abs=1e-5)
    assert sent.tensors["target.last_exit"].item() == pytest.approx(0.46561, abs=1e-5)


def test_fedpac(server: Server) -> None:
    algorithm = method("fedpac")

    def message(h: float, weighted_mean: float, mean: float, count: float) -> Message:
        statistics = {
            "class_counts": torch.tensor([count, 0.0]),
            "class_means.0": torch.tensor([[mean], [0.0]]),
            "weighted_means.0": torch.tensor([[weighted_mean], [0.0]]),
            "variances.0": torch.tensor([1.0]),
        }
        return upload(algorithm, 2 * h, h, int(count), **statistics)

    phi, _ = finish(algorithm, server, message(0.0, 0.0, 2.0, 1.0), message(3.0, 1.0, 6.0, 3.0))
    assert phi == 4.5  # 1/4 · 0 + 3/4 · 6
    # P_1 = diag(1, 1 + (0 − 1)²) = diag(1, 2): weights in inverse proportion, (2/3, 1/3). h_1 = 2/3 · 0 + 1/3 · 3 = 1;
    # for client 2 the mirror image: h_2 = 2.
    delivered = algorithm.model_for(server, [0, 1, 7], "evaluation")
    assert [delivered[c].tensors["last_exit"].item() for c in (0, 1, 7)] == pytest.approx([1.0, 2.0, 0.0])
    # Centroid of class 0: (1 · 2 + 3 · 6) / 4 = 5; nobody holds class 1.
    sent = algorithm.besides(server, Cohort(2, 9, (0,)))[0]
    assert sent.tensors["centroids.0"].flatten().tolist() == [5.0, 0.0]
    assert sent.tensors["known_classes"].tolist() == [1.0, 0.0]
    assert server.tensors["failed_programs"].item() == 0


def test_fedpac_counts_programs_that_fail_and_keeps_own_heads(server: Server) -> None:
    weights, failures = combine(np.array([[0.0], [np.nan]]), np.ones(2))
    assert failures == 2
    assert weights.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_fedpac_drops_small_weights_unless_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for small, expected in ((0.1, [0.25] * 4), (0.3, [0.25] * 4)):  # equal variances, equal heads: a quarter each
        monkeypatch.setattr("xfed.algorithms.fedpac.SMALL", small)
        weights, _ = combine(np.zeros((4, 1)), np.ones(4))
        np.testing.assert_allclose(weights, [expected] * 4)


@pytest.mark.parametrize("sigma", [10.0, 5000.0])
def test_fedamp_attention_is_a_softmax_over_the_others(sigma: float) -> None:
    cosines = np.array([[1.0, -0.5, -0.6], [-0.5, 1.0, -0.55], [-0.6, -0.55, 1.0]])
    found = heuristic_attention(cosines, sigma, own=0.4)
    for i in range(3):
        others = [j for j in range(3) if j != i]
        np.testing.assert_allclose(found[i, others], 0.6 * softmax(sigma * cosines[i, others]), atol=1e-12)
        assert found[i, i] == 0.4


def test_depthfl_with_feddyn_over_two_rounds(server: Server) -> None:
    algorithm = method("depthfl", alpha=0.1)
    # θ̄ = plain mean = (2, 4). H = 0 − 0.1 · (2/10) · (2, 4) = (−0.04, −0.08); θ = θ̄ − H/0.1 = (2.4, 4.8).
    assert finish(algorithm, server, upload(algorithm, 1, 3, 1), upload(algorithm, 3, 5, 9)) == pytest.approx(
        (2.4, 4.8)
    )
    # θ̄ = (3.4, 4.8): H = (−0.04, −0.08) − 0.02 · (1, 0) = (−0.06, −0.08); θ = (3.4 + 0.6, 4.8 + 0.8) = (4, 5.6).
    again = finish(algorithm, server, upload(algorithm, 3.4, 4.8, 1), upload(algorithm, 3.4, 4.8, 9))
    assert again == pytest.approx((4.0, 5.6))


def test_depthfl_without_feddyn_is_a_plain_mean(server: Server) -> None:
    algorithm = method("depthfl", feddyn=False)
    assert finish(algorithm, server, upload(algorithm, 1, 3, 1), upload(algorithm, 3, 5, 9)) == (2.0, 4.0)
