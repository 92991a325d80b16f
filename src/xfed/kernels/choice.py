"""Which kernels a run computes with: chosen once at its start, recorded with it, the same in every process.

Bits differ between kernel sets, so a set is named down to the compiled library and to every single layer. What was
measured on this machine is kept beside the library: a second run then chooses the same.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xfed.data.raw.locations import cache_root
from xfed.errors import InputError
from xfed.files import write_json
from xfed.kernels import first_stage, products
from xfed.kernels.library import UnavailableError, library
from xfed.models.network import EarlyExitNetwork

KernelChoice = Literal["standard", "fast", "auto"]
GAIN = 0.9
"""Share of the standard kernel's time that another one must stay below to be taken."""
REPETITIONS = 5


@dataclass(frozen=True)
class Kernels:
    """A kernel set; without anything in it, torch's own kernels."""

    first_stage: str | None = None
    """Digest of the compiled library that runs the first stage."""
    products: tuple[str, ...] = ()
    """Layers whose weight gradient is a matrix product."""

    def note(self) -> dict[str, Any]:
        """Describe the set for the run's own records."""
        kind = "standard" if self == STANDARD else "fast"
        return {"set": kind, "first_stage": self.first_stage, "products": list(self.products)}

    @classmethod
    def noted(cls, note: Mapping[str, Any]) -> Kernels:
        """Give the set that a run was started with, or say why it cannot be had here."""
        kernels = cls(note["first_stage"], tuple(note["products"]))
        if kernels.first_stage is not None:
            try:
                found = library().digest
            except UnavailableError as error:
                found = f"none ({error})"
            if found != kernels.first_stage:
                raise InputError(
                    f"the run was started with compiled kernels {kernels.first_stage}; here they are {found}: "
                    "another compiler or processor gives other bits"
                )
        return kernels

    def apply(self, network: EarlyExitNetwork) -> None:
        """Let a network's layers compute with this set; their names and numbers stay."""
        if self.first_stage is not None:
            first_stage.fuse(network.stages[0])
        for name in self.products:
            products.replace(network.get_submodule(name))


STANDARD = Kernels()


def choose(
    choice: KernelChoice, network: EarlyExitNetwork, example: Tensor, batch_size: int, device: torch.device
) -> Kernels:
    """Choose the kernels for a network on this machine.

    `fast` takes the compiled first stage wherever it fits, and refuses where it cannot be compiled; `auto` takes it
    where it is measured to be faster. Both measure weight gradients.
    """
    if choice == "standard":
        return STANDARD
    if device.type != "cpu":
        if choice == "fast":
            raise InputError(f"kernels is 'fast' and device {str(device)!r}: these kernels are for the CPU")
        return STANDARD
    batch = example[:1].repeat_interleave(batch_size, dim=0)
    digest = None
    if first_stage.fits(network.stages[0]):
        try:
            digest = library().digest
        except UnavailableError as error:
            if choice == "fast":
                raise InputError(f"kernels is 'fast', but {error}; allowed here: standard, auto") from None
    measured = Measurements.of_this_machine()
    if choice == "auto" and digest and not measured.first_stage_is_faster(network.stages[0], batch, digest):
        digest = None
    return Kernels(digest, tuple(measured.faster_products(network, batch)))


@dataclass(frozen=True)
class Measurements:
    """Times of both kernels by layer, kept in a file: a layer is measured once per machine."""

    path: Path
    times: dict[str, list[float]]
    """Seconds of the standard kernel and of the other one."""

    @classmethod
    def of_this_machine(cls) -> Measurements:
        """Read what was measured before with this torch on this processor."""
        machine = f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()} {_processor()}"
        name = hashlib.sha256(machine.encode()).hexdigest()[:16]
        path = cache_root() / "kernels" / f"times-{name}.json"
        try:
            return cls(path, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return cls(path, {})

    def first_stage_is_faster(self, stage: nn.Module, batch: Tensor, digest: str) -> bool:
        """Compare a training step of the first stage alone."""
        fused = nn.Sequential(*stage.children())
        first_stage.fuse(fused)
        key = f"first stage {digest} {tuple(batch.shape)} {list(stage.children())}"
        return self._faster(key, lambda: _train(stage, batch), lambda: _train(fused, batch))

    def faster_products(self, network: EarlyExitNetwork, batch: Tensor) -> list[str]:
        """Name the layers whose weight gradient is faster as a matrix product."""
        faster = []
        for name, layer, maps, gradient in _convolutions(network, batch):
            key = f"products {tuple(maps.shape)} {layer}"
            if self._faster(
                key, partial(_by_torch, layer, maps, gradient), partial(_by_product, layer, maps, gradient)
            ):
                faster.append(name)
        return faster

    def _faster(self, key: str, standard: Callable[[], object], other: Callable[[], object]) -> bool:
        if key not in self.times:
            self.times[key] = _race(standard, other)
            with suppress(OSError):  # then it is measured again next time
                write_json(self.path, self.times)
        usual, ours = self.times[key]
        return ours < GAIN * usual


def _race(*works: Callable[[], object]) -> list[float]:
    """Time pieces of work in turns, after one turn to warm up; the fastest of each counts."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(1 + REPETITIONS):
        for work, found in zip(works, times, strict=True):
            begin = perf_counter()
            work()
            found.append(perf_counter() - begin)
    return [min(found[1:]) for found in times]


def _train(stage: nn.Module, batch: Tensor) -> Sequence[Tensor]:
    return torch.autograd.grad(stage(batch).sum(), list(stage.parameters()))


@torch.no_grad()
def _convolutions(network: EarlyExitNetwork, batch: Tensor) -> list[tuple[str, nn.Conv2d, Tensor, Tensor]]:
    """Find the layers that a product could serve, with maps and gradients of the shapes they meet in training."""
    found: list[tuple[str, nn.Conv2d, Tensor, Tensor]] = []
    hooks = []
    for name, layer in network.stages.named_modules(prefix="stages"):
        if products.fits(layer):

            def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, name: str = name) -> None:
                assert isinstance(layer, nn.Conv2d)
                found.append((name, layer, inputs[0], torch.ones_like(output)))

            hooks.append(layer.register_forward_hook(note))
    was_training = network.training
    if hooks:
        network.eval()(batch)
    network.train(was_training)
    for hook in hooks:
        hook.remove()
    return found


@torch.no_grad()
def _by_torch(layer: nn.Conv2d, maps: Tensor, gradient: Tensor) -> Tensor:
    settings = (layer.stride, layer.padding, (1, 1), False, (0, 0), 1)
    wanted = (False, True, False)
    found: Tensor = products.aten.convolution_backward(gradient, maps, layer.weight, None, *settings, wanted)[1]
    return found.contiguous()


@torch.no_grad()
def _by_product(layer: nn.Conv2d, maps: Tensor, gradient: Tensor) -> Tensor:
    kernel, stride, padding = layer.kernel_size[0], layer.stride[0], int(layer.padding[0])
    return products.weight_gradient(maps, gradient, kernel, stride, padding).contiguous()


def _processor() -> str:
    """Name the processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
