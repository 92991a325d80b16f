"""Where each parameter lives in the one flat vector of a model, and how parts are cut out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from xfed.models.network import EarlyExitNetwork, running_statistics
from xfed.models.parts import Parts

ALIGNMENT = 16  # float32 values, 64 bytes: kernels then see every part at the same alignment everywhere


@dataclass(frozen=True)
class Entry:
    """One named tensor in a flat vector."""

    name: str
    shape: torch.Size
    part: Parts
    start: int

    @property
    def stop(self) -> int:
        """End of the tensor in the flat vector."""
        return self.start + prod(self.shape)


@dataclass(frozen=True)
class ModelState:
    """All numbers of a model: the flat parameters (with padding between parts) and the flat statistics."""

    parameters: Tensor
    statistics: Tensor

    def clone(self) -> ModelState:
        """Copy both vectors."""
        return ModelState(self.parameters.clone(), self.statistics.clone())

    def to(self, device: torch.device) -> ModelState:
        """Move both vectors."""
        return ModelState(self.parameters.to(device), self.statistics.to(device))


@dataclass(frozen=True)
class Layout:
    """Addresses of a network's tensors. Equal networks have equal layouts, on every machine."""

    entries: tuple[Entry, ...]
    size: int
    statistics: tuple[Entry, ...]
    statistics_size: int
    exits: int

    @classmethod
    def of(cls, network: EarlyExitNetwork, exits: int | None = None) -> Layout:
        """Lay out stages first, then exits; every stage and every exit starts on a 64-byte boundary.

        `exits` is the number of exits of the full network, where this one is cut out of it: parts keep their names.
        """
        entries: list[Entry] = []
        end = 0
        last = (exits or len(network.exits)) - 1
        for prefix, modules in (("stages", network.stages), ("exits", network.exits)):
            for index, module in enumerate(modules):
                part = Parts.BACKBONE
                if prefix == "exits":
                    part = Parts.LAST_EXIT if index == last else Parts.SHALLOW_EXITS
                end = -(-end // ALIGNMENT) * ALIGNMENT
                for name, parameter in module.named_parameters():
                    entries.append(Entry(f"{prefix}.{index}.{name}", parameter.shape, part, end))
                    end = entries[-1].stop
        statistics: list[Entry] = []
        count = 0
        for name, buffer in running_statistics(network).items():
            statistics.append(Entry(name, buffer.shape, Parts.STATISTICS, count))
            count = statistics[-1].stop
        return cls(tuple(entries), -(-end // ALIGNMENT) * ALIGNMENT, tuple(statistics), count, last + 1)

    def bind(self, network: EarlyExitNetwork, device: torch.device) -> ModelState:
        """Move the network's numbers into two flat vectors and make its tensors views of them.

        Gradients come in the same row-major order, whatever memory format the layers compute in: the fused
        optimizer reads both as flat memory and would silently pair up the wrong numbers otherwise.
        """
        state = ModelState(torch.zeros(self.size, device=device), torch.zeros(self.statistics_size, device=device))
        parameters = dict(network.named_parameters())
        for entry in self.entries:
            view = state.parameters[entry.start : entry.stop].view(entry.shape)
            parameter = parameters[entry.name]
            parameter.data = view.copy_(parameter.data)
            if parameter.requires_grad:
                parameter.register_hook(Tensor.contiguous)
        for entry, buffer in zip(self.statistics, running_statistics(network).values(), strict=True):
            buffer.data = state.statistics[entry.start : entry.stop].view(entry.shape).copy_(buffer.data)
        return state

    def entries_of(self, parts: Parts) -> tuple[Entry, ...]:
        """Give the entries of some parts, in the order of the flat vector."""
        return tuple(entry for entry in self.entries + self.statistics if entry.part in parts)

    def count(self, parts: Parts) -> int:
        """Count the numbers in some parts, without padding."""
        return sum(entry.stop - entry.start for entry in self.entries_of(parts))

    def exit_count(self, index: int) -> int:
        """Count the numbers of one exit."""
        return sum(entry.stop - entry.start for entry in self.entries if entry.name.startswith(f"exits.{index}."))

    def gather(self, state: ModelState, part: Parts) -> Tensor:
        """Copy one part out, densely packed."""
        source = state.statistics if part is Parts.STATISTICS else state.parameters
        pieces = [source[entry.start : entry.stop] for entry in self.entries_of(part)]
        return torch.cat(pieces) if pieces else source.new_zeros(0)

    def scatter(self, state: ModelState, part: Parts, packed: Tensor) -> None:
        """Copy one densely packed part into its place."""
        target = state.statistics if part is Parts.STATISTICS else state.parameters
        if packed.numel() != self.count(part):
            raise ValueError(f"{part.key} has {packed.numel()} numbers; this network's has {self.count(part)}")
        start = 0
        for entry in self.entries_of(part):
            width = entry.stop - entry.start
            target[entry.start : entry.stop].copy_(packed[start : start + width])
            start += width

    def pack(self, state: ModelState, parts: Parts) -> dict[str, Tensor]:
        """Copy parts out by name, leaving out those this network does not have."""
        return {part.key: self.gather(state, part) for part in parts if self.count(part)}

    def unpack(self, state: ModelState, tensors: Mapping[str, Tensor]) -> None:
        """Copy named parts into their places."""
        parts = {part.key: part for part in Parts.MODEL | Parts.STATISTICS}
        for name in tensors:
            if name not in parts:
                raise ValueError(f"{name!r} is no part of a model; allowed: {', '.join(parts)}")
        for key, part in parts.items():
            if key in tensors:
                self.scatter(state, part, tensors[key])

    def indices_in(self, full: Layout) -> dict[str, Tensor]:
        """Tell where each number of this layout's packed parts stands in a fuller network's packed parts.

        Tensors correspond by name; a smaller one is the leading corner of the fuller one.
        """
        indices: dict[str, Tensor] = {}
        for part in Parts.MODEL | Parts.STATISTICS:
            starts, end = {}, 0
            for entry in full.entries_of(part):
                starts[entry.name] = (end, entry.shape)
                end += entry.stop - entry.start
            pieces = []
            for entry in self.entries_of(part):
                start, shape = starts[entry.name]
                numbers = torch.arange(start, start + prod(shape)).view(shape)
                pieces.append(numbers[tuple(slice(size) for size in entry.shape)].flatten())
            if pieces:
                indices[part.key] = torch.cat(pieces)
        return indices

    def views(self, state: ModelState) -> dict[str, Tensor]:
        """Look at the parameters in place, by name."""
        return {e.name: state.parameters[e.start : e.stop].view(e.shape) for e in self.entries}

    def named(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Split packed parts into the network's own tensors, by their `state_dict` names."""
        named: dict[str, Tensor] = {}
        for part in Parts.MODEL | Parts.STATISTICS:
            if part.key in tensors:
                entries = self.entries_of(part)
                pieces = tensors[part.key].split([entry.stop - entry.start for entry in entries])
                named.update((e.name, p.view(e.shape)) for e, p in zip(entries, pieces, strict=True))
        return named
