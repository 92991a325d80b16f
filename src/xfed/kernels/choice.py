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
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xfed.data.raw.locations import cache_root
from xfed.errors import InputError
from xfed.files import write_json
from xfed.kernels import products, stages
from xfed.kernels.library import UnavailableError, library
from xfed.models.network import EarlyExitNetwork, StageState

KernelChoice = Literal["standard", "fast", "auto"]
GAIN = 0.9
"""Share of the standard kernel's time that another one must stay below to be taken."""
REPETITIONS = 5


@dataclass(frozen=True)
class Kernels:
    """A kernel set; without anything in it, torch's own kernels."""

    library: str | None = None
    """Digest of the compiled library; nothing where no stage uses it."""
    stages: tuple[int, ...] = ()
    """Stages that run as one compiled kernel."""
    products: tuple[str, ...] = ()
    """Layers whose weight gradient is a matrix product."""

    def note(self) -> dict[str, Any]:
        """Describe the set for the run's own records."""
        return {"set": "standard" if self == STANDARD else "fast", **asdict(self)}

    def sentence(self) -> str:
        """Tell people which kernels compute."""
        if self == STANDARD:
            return "torch's own"
        told = []
        if self.stages:
            told.append(f"stages {', '.join(str(index + 1) for index in self.stages)} compiled ({self.library})")
        if self.products:
            told.append(f"weight gradients as matrix products in {', '.join(self.products)}")
        return "; ".join(told)

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Kernels:
        """Read what `note` wrote."""
        return cls(note["library"], tuple(note["stages"]), tuple(note["products"]))

    def require(self) -> None:
        """Refuse to go on with compiled kernels of other bits."""
        if self.library is None:
            return
        try:
            found = library().digest
        except UnavailableError as error:
            found = f"none ({error})"
        if found != self.library:
            raise InputError(
                f"the run was started with compiled kernels {self.library}; here they are {found}: "
                "another compiler or processor gives other bits"
            )

    def apply(self, network: EarlyExitNetwork) -> None:
        """Let a network's layers compute with this set, in whatever process; their names and numbers stay."""
        self.require()
        for index in self.stages:
            stages.fuse(network.stages[index])
        for name in self.products:
            products.replace(network.get_submodule(name))


STANDARD = Kernels()


def choose(
    choice: KernelChoice, network: EarlyExitNetwork, example: Tensor, batch_size: int, device: torch.device
) -> Kernels:
    """Choose the kernels for a network on this machine.

    `fast` takes the compiled kernel for every stage that it fits, and refuses where there is no compiler; `auto` takes
    it where it is measured to be faster. Both measure weight gradients.
    """
    if choice == "standard":
        return STANDARD
    if device.type != "cpu":
        if choice == "fast":
            raise InputError(f"kernels is 'fast' and device {str(device)!r}: these kernels are for the CPU")
        return STANDARD
    batch = example[:1].repeat_interleave(batch_size, dim=0)
    measured = Measurements.of_this_machine()
    try:
        digest = library().digest
        fitting = [index for index, stage in enumerate(network.stages) if stages.fits(stage)]
    except UnavailableError as error:
        if choice == "fast":
            raise InputError(f"kernels is 'fast', but {error}; allowed here: standard, auto") from None
        digest, fitting = "", []
    if choice == "auto":
        fitting = measured.faster_stages(network, batch, fitting, digest)
    return Kernels(digest if fitting else None, tuple(fitting), tuple(measured.faster_products(network, batch)))


@dataclass(frozen=True)
class Measurements:
    """Times of both kernels by layer, kept in a file: a layer is measured once per machine."""

    path: Path
    times: dict[str, list[float]]
    """Seconds of the standard kernel and of the other one."""

    @classmethod
    def of_this_machine(cls) -> Measurements:
        """Read what was measured before with this torch on this processor."""
        machine = f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()} {processor()}"
        name = hashlib.sha256(machine.encode()).hexdigest()[:16]
        path = cache_root() / "kernels" / f"times-{name}.json"
        try:
            return cls(path, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return cls(path, {})

    def faster_stages(
        self, network: EarlyExitNetwork, batch: Tensor, candidates: Sequence[int], digest: str
    ) -> list[int]:
        """Name the stages whose training step is faster as one compiled kernel."""
        faster = []
        state: StageState = batch
        for index, stage in enumerate(network.stages):
            if index in candidates:
                assert isinstance(state, Tensor)
                fused = nn.Sequential(*stage.children())
                stages.fuse(fused)
                key = f"stage {digest} {tuple(state.shape)} {list(stage.children())}"
                if self._faster(key, partial(_train, stage, state), partial(_train, fused, state)):
                    faster.append(index)
            with torch.no_grad():
                state = network.stage(index, state)
        return faster

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


def _train(stage: nn.Module, inputs: Tensor) -> Sequence[Tensor]:
    """Take the gradients that a training step takes: an image has none."""
    wanted = list(stage.parameters())
    if inputs.shape[1] not in stages.IMAGE_CHANNELS:
        inputs = inputs.detach().requires_grad_()
        wanted.append(inputs)  # type: ignore[arg-type]
    return torch.autograd.grad(stage(inputs).sum(), wanted)


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


def processor() -> str:
    """Name the processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
