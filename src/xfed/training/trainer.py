"""The only training loop, and the only loop that runs a network over a view.

`Trainer` owns one resident network whose tensors are views of two flat vectors. Both its functions take all
numbers as arguments and give new ones back; nothing is remembered between calls.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from xfed.data.augmentation import Augmentation
from xfed.data.views import View
from xfed.models.costs import Costs, count_costs
from xfed.models.layout import Layout, ModelState
from xfed.models.network import EarlyExitNetwork, ExitOutputs, Normalisation, rows
from xfed.models.parts import Parts
from xfed.randomness import Purpose, derive
from xfed.training.frozen import FrozenFeatures
from xfed.training.objectives import Batch, Objective
from xfed.training.optimizers import OptimizerKind, Steps

EVALUATION_BATCH = 128  # fixed, so that bits never depend on who evaluates
OUTSIDE_PHASES = -1
"""Stands for a phase's number where batches are drawn outside of training."""


@dataclass(frozen=True)
class Phase:
    """One stretch of training: what trains, which exits are active, for how long and how.

    The optimizer is new in every phase and holds only what trains: the named parts, and of the exits the
    active ones. Everything else is truly frozen: no gradient, no momentum, no weight decay.
    """

    objective: Objective
    epochs: int
    rate: float
    parts: Parts = Parts.MODEL
    exits: Collection[int] | None = None
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float | None = None
    """Largest norm of the whole gradient; longer ones are scaled down."""
    optimizer: OptimizerKind = "sgd"


@dataclass
class Meter:
    """What a piece of client work really cost."""

    macs: int = 0
    samples: int = 0
    loss_sum: float = 0.0

    @property
    def loss(self) -> float:
        """Mean training loss over all samples seen."""
        return self.loss_sum / self.samples if self.samples else float("nan")


@dataclass(frozen=True)
class Stream:
    """Names the random streams of one piece of client work."""

    seed: int
    client: int
    round: int
    batches: Purpose = Purpose.BATCHES

    def derive(self, purpose: Purpose, phase: int = 0) -> int:
        """Give the seed of one stream."""
        return derive(self.seed, purpose, self.client, self.round, phase)


@dataclass(eq=False)
class Trainer:
    """A resident network and the two loops over it."""

    network: EarlyExitNetwork
    layout: Layout
    costs: Costs
    device: torch.device
    batch_size: int
    augmentation: Augmentation | None = None
    """What is done to training images at random; evaluation sees them as they are."""
    _resident: ModelState = field(init=False, repr=False)
    _costs_by_shape: dict[torch.Size, Costs] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.network.to(self.device)
        self._resident = self.layout.bind(self.network, self.device)

    def train(self, model: ModelState, view: View, phases: Sequence[Phase], stream: Stream, meter: Meter) -> ModelState:
        """Run the phases from `model` on a view; give the trained model, leaving `model` as it was."""
        self._load(model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream.derive(Purpose.DROPOUT))
            for number, phase in enumerate(phases):
                self._run(phase, view, stream.derive(stream.batches, number), meter)
        return self.snapshot()

    def _run(self, phase: Phase, view: View, seed: int, meter: Meter) -> None:
        network = self.network.train()
        exits = sorted(range(len(network.exits)) if phase.exits is None else phase.exits)
        trained: list[Tensor] = [*self._select(phase.parts, exits), *phase.objective.parameters()]
        if not trained or phase.epochs == 0:
            return
        trains = (Parts.BACKBONE in phase.parts, bool(Parts.EXITS & phase.parts))
        steps = Steps(phase.optimizer, trained, phase.rate, phase.momentum, phase.weight_decay)
        batches = torch.Generator().manual_seed(seed)
        changes = torch.Generator().manual_seed(derive(seed, Purpose.AUGMENTATION))
        losses = torch.zeros((), dtype=torch.float64, device=self.device)
        frozen = None
        alike = not trains[0] and phase.epochs > 1 and self.augmentation is None
        if alike and FrozenFeatures.apply_to(network, exits):
            frozen = FrozenFeatures(network, exits, len(view))
        for epoch in range(phase.epochs):
            drawn = None
            if self.augmentation is not None:
                drawn = self.augmentation.draw(len(view), view.dataset.input_shape, changes)
            for positions, inputs, labels in view.shuffled(self.batch_size, batches, drawn):
                costs = self._costs(inputs)
                cost, again = costs.training(exits, *trains), 0
                if frozen is None:
                    features, logits = network(inputs, exits)
                elif frozen.knows(positions):
                    features, logits = frozen.look_up(positions)
                    cost = costs.on_features(exits, trains[1])
                else:
                    (features, logits), again = frozen.run(inputs, positions)
                loss = phase.objective(Batch(inputs, labels, positions, features, logits, network, epoch))
                gradients: Sequence[Tensor | None] = torch.autograd.grad(loss, trained, allow_unused=True)
                steps.take(gradients if phase.clip is None else _clipped(gradients, phase.clip))
                losses += loss.detach() * len(positions)
                meter.samples += len(positions)
                meter.macs += cost * len(positions) + costs.forward(exits) * again
        meter.loss_sum += losses.item()

    def _select(self, parts: Parts, exits: Sequence[int]) -> list[nn.Parameter]:
        """Let gradients reach exactly what trains in a phase, and give it."""
        active = tuple(f"exits.{index}." for index in exits)
        part_of = {entry.name: entry.part for entry in self.layout.entries}
        chosen = []
        for name, parameter in self.network.named_parameters():
            trains = part_of[name] in parts and (part_of[name] is Parts.BACKBONE or name.startswith(active))
            parameter.requires_grad_(trains)
            if trains:
                chosen.append(parameter)
        return chosen

    @torch.no_grad()
    def outputs(self, model: ModelState, view: View, exits: Collection[int], meter: Meter | None = None) -> ExitOutputs:
        """Run the network over a view in order, touching neither randomness nor statistics."""
        self._load(model)
        network = self.network.eval()
        pieces = []
        for _, inputs, _ in view.in_order(EVALUATION_BATCH):
            if meter is not None:
                meter.macs += self._costs(inputs).forward(exits) * len(inputs)
            pieces.append(network(inputs, exits))
        return ExitOutputs(
            {j: torch.cat([piece.features[j] for piece in pieces]) for j in exits},
            {j: torch.cat([piece.logits[j] for piece in pieces]) for j in exits},
        )

    @torch.no_grad()
    def outputs_by_batch(
        self, model: ModelState, view: View, exits: Collection[int], stream: Stream, meter: Meter
    ) -> ExitOutputs:
        """Run the network over a view as training does, batch by batch: BatchNorm normalises by the batch at hand.

        Batches are drawn at random, so that none holds one class alone; the outputs come back in the view's order.
        """
        if not self.layout.count(Parts.STATISTICS):
            return self.outputs(model, view, exits, meter)
        network = self.frozen_copy(model)
        generator = torch.Generator().manual_seed(stream.derive(stream.batches, OUTSIDE_PHASES))
        pieces, order = [], []
        for positions, inputs, _ in view.shuffled(self.batch_size, generator):
            meter.macs += self._costs(inputs).forward(exits) * len(inputs)
            pieces.append(network(inputs, exits))
            order.append(positions)
        back = torch.cat(order).argsort()
        return ExitOutputs(
            {j: torch.cat([piece.features[j] for piece in pieces])[back] for j in exits},
            {j: torch.cat([piece.logits[j] for piece in pieces])[back] for j in exits},
        )

    @torch.no_grad()
    def outputs_together(
        self, model: ModelState, members: Sequence[tuple[View, Mapping[str, Tensor]]]
    ) -> list[dict[int, Tensor]]:
        """Give the logits of every exit for several views in one pass over the backbone, each view with its own exits.

        `model` is any member's: all share its backbone and statistics. Views are of one data set.
        """
        self._load(model)
        network = self.network.eval()
        together = View(members[0][0].dataset, torch.cat([view.indices for view, _ in members]))
        member_of = torch.repeat_interleave(torch.tensor([len(view) for view, _ in members]))
        pieces: list[dict[int, list[Tensor]]] = [{j: [] for j in range(len(network.exits))} for _ in members]
        batches = together.in_order(EVALUATION_BATCH)
        for members_of, (_, inputs, _) in zip(member_of.split(EVALUATION_BATCH), batches, strict=True):
            states = list(network.states(inputs))
            owners, counts = members_of.unique_consecutive(return_counts=True)
            start = 0
            for owner, count in zip(owners.tolist(), counts.tolist(), strict=True):
                self.layout.unpack(self._resident, members[owner][1])
                for j, state in enumerate(states):
                    pieces[owner][j].append(network.exits[j](rows(state, slice(start, start + count)))[1])
                start += count
        nothing = torch.zeros(0, len(together.dataset.classes), device=self.device)
        return [{j: torch.cat(found) if found else nothing for j, found in piece.items()} for piece in pieces]

    def _costs(self, inputs: Tensor) -> Costs:
        """Give the cost of one of these inputs: shorter text costs less."""
        shape = inputs.shape[1:]
        if shape not in self._costs_by_shape:
            self._costs_by_shape[shape] = count_costs(self.network, inputs[:1])
        return self._costs_by_shape[shape]

    def snapshot(self) -> ModelState:
        """Copy the resident numbers; right after construction, the initial ones."""
        return self._resident.clone()

    def frozen_copy(self, model: ModelState, by_batch: bool = True) -> EarlyExitNetwork:
        """Give a second network with `model`'s numbers, in evaluation mode except for BatchNorm.

        Its BatchNorm layers normalise by the batch at hand and update nothing (momentum 0): a teacher on a
        client's stale running statistics is useless. Where statistics are averaged, `by_batch` is off.
        """
        network = copy.deepcopy(self.network).eval().requires_grad_(False)
        copied = self.layout.bind(network, self.device)
        copied.parameters.copy_(model.parameters)
        copied.statistics.copy_(model.statistics)
        for module in network.modules():
            if by_batch and isinstance(module, Normalisation):
                module.train()
                module.momentum = 0.0
        return network

    def _load(self, model: ModelState) -> None:
        self._resident.parameters.copy_(model.parameters)
        self._resident.statistics.copy_(model.statistics)


def _clipped(gradients: Sequence[Tensor | None], limit: float) -> list[Tensor | None]:
    """Scale all gradients down together where their common norm exceeds the limit."""
    norms = [gradient.norm() for gradient in gradients if gradient is not None]
    factor = (limit / torch.stack(norms).norm().clamp(min=1e-12)).clamp(max=1.0)
    return [None if gradient is None else gradient * factor for gradient in gradients]
