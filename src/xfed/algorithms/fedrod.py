"""FedRoD (Chen & Chao, 2022), with linear personal heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from xfed.algorithms.fedavg import FedAvg
from xfed.components import BaseSettings
from xfed.errors import InputError
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.algorithm import LOCAL_TEMPERATURE, LocalDistillation, method
from xfed.protocol.client import Client, Personal
from xfed.protocol.message import Message
from xfed.training.distillation import divergence
from xfed.training.objectives import Batch, Objective
from xfed.training.trainer import Meter

PERSONAL = "personal."
OWN_BACKBONE = "own_backbone"


@dataclass(frozen=True)
class GenericAndPersonal(Objective):
    """Balanced softmax for the generic exits, cross-entropy of generic + personal for the personal ones.

    (1/m) Σ_j [CE(z_j^G + γ log N(c), y) + CE(sg(z_j^G) + z_j^P(sg(f_j)), y)], sg: no gradient. The second term
    reaches the personal heads alone, so one step on the sum is a step on each.
    """

    heads: list[tuple[Tensor, Tensor]]
    prior: Tensor
    local_kd: LocalDistillation
    meter: Meter

    def parameters(self) -> list[Tensor]:
        """Give the personal heads."""
        return [tensor for head in self.heads for tensor in head]

    def __call__(self, batch: Batch) -> Tensor:
        """Add both losses, and local distillation within each."""
        generic = batch.logits
        both = {j: generic[j].detach() + F.linear(batch.features[j].detach(), *self.heads[j]) for j in sorted(generic)}
        self.meter.macs += 2 * len(batch.labels) * sum(weight.numel() for weight, _ in self.heads)
        losses = [F.cross_entropy(generic[j] + self.prior, batch.labels) for j in generic]
        losses += [F.cross_entropy(both[j], batch.labels) for j in both]
        total = torch.stack(losses).sum() / len(generic)
        if self.local_kd == "off" or len(generic) == 1:
            return total
        strength = 1.0 if self.local_kd == "sum" else 1.0 / len(generic)
        terms = [
            divergence(logits[max(logits)].detach(), logits[j], LOCAL_TEMPERATURE)
            for logits in (generic, both)
            for j in logits
            if j < max(logits)
        ]
        return total + strength * torch.stack(terms).sum()


@method("fedrod")
class FedRoD(FedAvg):
    """A generic model trained on balanced losses, and personal heads that correct it on each client.

    Objective: (1/m) Σ_j CE(z_j^G + γ log N_i(c)) for backbone and generic exits; (1/m) Σ_j CE(z_j^G + z_j^P) for the
    personal heads alone. Travels and is averaged: backbone and generic exits. Stays on the client: personal heads,
    zero at first. Evaluated is the sum of both heads at every exit, folded into one linear layer.
    """

    class Settings(BaseSettings):
        gamma: NonNegativeFloat = Field(1.0, description="γ of the balanced softmax")
        body: Literal["global", "local"] = Field(
            "global", description="evaluate with the newest global backbone, or the client's own last one"
        )

    settings: Settings

    @property
    def personal_exits(self) -> Parts:
        """Generic and personal heads, folded, are the client's own."""
        return Parts.EXITS

    def check(self, subnetworks: Subnetworks, population: int) -> None:
        """Refuse exits that hold more or less than weights and biases: a personal head is added to these."""
        super().check(subnetworks, population)
        names = {entry.name for entry in subnetworks.layout.entries if entry.part in Parts.EXITS}
        heads = {head_name(j, kind) for j in range(len(subnetworks.network.exits)) for kind in ("weight", "bias")}
        if names != heads:
            raise InputError(
                "method 'fedrod' needs exits that are one linear layer with bias, and those of this network are not"
            )

    def train(self, client: Client, received: Message) -> Message:
        """Train backbone, generic exits and personal heads side by side."""
        heads = self._heads(client)
        objective = GenericAndPersonal(heads, self._prior(client), self.local_kd, client.meter)
        model = client.model(client.state, received.tensors)
        trained = client.train(model, [client.phase(objective)])
        client.state.update(client.pack(trained, self.stays))
        if self.settings.body == "local":
            client.state[OWN_BACKBONE] = client.pack(trained, Parts.BACKBONE)[Parts.BACKBONE.key]
        flat = [torch.cat([weight.detach().flatten(), bias.detach()]).cpu() for weight, bias in heads]
        client.state[PERSONAL + Parts.LAST_EXIT.key] = flat[-1]
        if len(flat) > 1:
            client.state[PERSONAL + Parts.SHALLOW_EXITS.key] = torch.cat(flat[:-1])
        return Message(client.pack(trained, self.travelling), {"samples": client.samples})

    def personal(self, client: Client, received: Message) -> Personal:
        """Fold generic and personal heads: the sum of two linear layers is one."""
        own = {}
        for part in Parts.EXITS:
            if part.key in received.tensors:
                generic = received.tensors[part.key]
                own[part.key] = generic + client.state.get(PERSONAL + part.key, torch.zeros_like(generic))
        if self.settings.body == "local" and OWN_BACKBONE in client.state:
            own[Parts.BACKBONE.key] = client.state[OWN_BACKBONE]
        return super().personal(client, received).having(own)

    def _prior(self, client: Client) -> Tensor:
        """Give γ log N(c): −∞ for classes the client does not hold, which is safe since they are never the target.

        γ = 0 means no prior at all: 0 · log 0 counts as 0.
        """
        counts = client.class_counts().float()
        prior = (self.settings.gamma * counts.log()).nan_to_num(nan=0.0, neginf=-torch.inf)
        return prior.to(client.trainer.device)

    def _heads(self, client: Client) -> list[tuple[Tensor, Tensor]]:
        """Bring the personal heads to life, zero at first, in the shapes of the network's exits."""
        layout = client.trainer.layout
        zero = {p.key: torch.zeros(layout.count(p)) for p in Parts.EXITS if layout.count(p)}
        packed = {name: client.state.get(PERSONAL + name, tensor) for name, tensor in zero.items()}
        named = layout.named(packed)
        device, heads = client.trainer.device, []
        for index in range(client.exits):
            weight, bias = (named[head_name(index, kind)].to(device).clone() for kind in ("weight", "bias"))
            heads.append((weight.requires_grad_(), bias.requires_grad_()))
        return heads


def head_name(index: int, kind: str) -> str:
    """Name the weight or the bias of an exit, as in `state_dict`."""
    return f"exits.{index}.linear.{kind}"
