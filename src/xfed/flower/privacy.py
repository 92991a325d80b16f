"""What a node does to its uploads before they leave: clip the update, and add Gaussian noise.

No ε is claimed for it: that depends on how often a node takes part and on who counts as an adversary, and takes an
accountant. What a node does is reported with its name in the run's roster.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

from xfed.protocol.message import Message


@dataclass(frozen=True)
class Blur:
    """Bounds how much one upload can say.

    The update is the upload minus what was received (minus nothing, for a tensor that was not received). Its norm,
    over all tensors together, is at most `clip`; then every number gets noise of standard deviation `noise` × `clip`.
    """

    clip: float
    noise: float

    def apply(self, received: Message, upload: Message) -> Message:
        """Give the upload as it may leave; plain values, such as the number of samples, stay as they are."""
        origin = {n: self._origin(received, n, t) for n, t in upload.tensors.items() if t.is_floating_point()}
        updates = {name: upload.tensors[name].double() - start for name, start in origin.items()}
        norm = math.sqrt(sum(float(update.square().sum()) for update in updates.values()))
        factor = min(1.0, self.clip / norm) if norm > 0 else 1.0
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        blurred = {}
        for name, update in updates.items():
            noise = torch.randn(update.shape, generator=generator, dtype=torch.float64) * (self.noise * self.clip)
            blurred[name] = (origin[name] + factor * update + noise).to(upload.tensors[name].dtype)
        return upload.having(blurred)

    @staticmethod
    def _origin(received: Message, name: str, tensor: Tensor) -> Tensor:
        start = received.tensors.get(name)
        fits = start is not None and start.shape == tensor.shape
        return start.double() if start is not None and fits else torch.zeros_like(tensor, dtype=torch.float64)
