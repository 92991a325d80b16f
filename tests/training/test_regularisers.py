"""Terms on parameters: their gradients by formula."""

from __future__ import annotations

import torch
from torch import nn

from xfed.models.network import EarlyExitNetwork, Exit
from xfed.training.objectives import Batch
from xfed.training.regularisers import Alignment, Linear, Proximal


def network_and_batch() -> tuple[EarlyExitNetwork, Batch, dict[str, torch.Tensor]]:
    torch.manual_seed(3)
    network = EarlyExitNetwork([nn.Linear(3, 2)], [Exit(2, 4)], [0]).double()
    none = torch.zeros(0)
    reference = {name: torch.randn_like(p) for name, p in network.named_parameters()}
    return network, Batch(none, none, none, {}, {}, network), reference


def test_proximal_pulls_in_proportion_to_distance() -> None:
    network, batch, reference = network_and_batch()
    parameters = dict(network.named_parameters())
    gradients = torch.autograd.grad(Proximal(reference, 0.3)(batch), list(parameters.values()))
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        torch.testing.assert_close(gradient, 0.3 * (parameter - reference[name]).detach())


def test_linear_adds_a_constant_to_the_gradient() -> None:
    network, batch, reference = network_and_batch()
    gradients = torch.autograd.grad(Linear(reference)(batch), list(network.parameters()))
    for gradient, direction in zip(gradients, reference.values(), strict=True):
        torch.testing.assert_close(gradient, -direction)


def test_alignment_is_the_scaled_cosine() -> None:
    network, batch, reference = network_and_batch()
    w = torch.cat([parameter.flatten() for parameter in network.parameters()]).detach()
    target = torch.cat([tensor.flatten() for tensor in reference.values()])
    gradients = torch.autograd.grad(Alignment(reference, -0.01)(batch), list(network.parameters()))
    # d/dw ⟨w, r⟩ / ‖w‖ = r / ‖w‖ − ⟨w, r⟩ w / ‖w‖³
    expected = -0.01 * (target / w.norm() - (w @ target) * w / w.norm() ** 3)
    torch.testing.assert_close(torch.cat([gradient.flatten() for gradient in gradients]), expected)


def test_only_what_trains_is_regularised() -> None:
    network, batch, reference = network_and_batch()
    network.exits.requires_grad_(False)
    value = Proximal(reference, 2.0)(batch)
    parts = [(p - reference[n]).square().sum() for n, p in network.named_parameters() if n.startswith("stages")]
    torch.testing.assert_close(value.detach(), torch.stack(parts).sum().detach())
