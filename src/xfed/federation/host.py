"""Where clients live: everything that one device would have, for any client asked for."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from xfed.components import load_plugin
from xfed.data.augmentation import Augmentation
from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.data.views import ClientData
from xfed.errors import InputError
from xfed.evaluation.accuracy import Evaluation, evaluate
from xfed.experiment.recipe import Recipe
from xfed.kernels.choice import STANDARD, Kernels
from xfed.models.costs import count_costs
from xfed.models.layout import Layout, ModelState
from xfed.models.network import refuse_memory
from xfed.models.parts import Parts
from xfed.models.subnetwork import Level, Subnetworks
from xfed.protocol.algorithm import Algorithm
from xfed.protocol.client import Client, Personal, Schedule
from xfed.protocol.message import Message
from xfed.protocol.uploads import DivergedError
from xfed.protocol.words import Briefing, ClientState, Evaluated, EvaluateTask, Failed, Task, Trained, TrainTask, Word
from xfed.training.trainer import Meter, Trainer

State = Mapping[str, Tensor]


def build_trainer(recipe: Recipe, card: DataCard, device: str, kernels: Kernels = STANDARD) -> Trainer:
    """Build the resident network and the loops over it."""
    network = recipe.network(card.input_shape, len(card.classes))
    try:
        costs = count_costs(network, card.example())
    except IndexError:
        raise InputError(
            f"data set {card.name!r} has token ids up to {(card.tokens or 1) - 1}, which model "
            f"{recipe.model!r} does not know; set {recipe.model}.vocabulary higher"
        ) from None
    refuse_memory(recipe.model, network, card.example())
    training = recipe.training
    if training.augment and card.kind != "image":
        raise InputError(f"augment changes images, but data set {card.name!r} is text; allowed with it: none")
    kernels.apply(network)
    augmentation = Augmentation(training.augment) if training.augment else None
    return Trainer(network, Layout.of(network), costs, torch.device(device), training.batch_size, augmentation)


@dataclass(eq=False)
class Host:
    """Does client work in this process, one client at a time, on one resident network."""

    algorithm: Algorithm
    trainer: Trainer
    initial: ModelState
    card: DataCard
    population: int
    schedule: Schedule
    seed: int
    data: Callable[[int], ClientData]
    """Opens a client's views."""
    levels: dict[Level, tuple[Trainer, ModelState]] = field(default_factory=dict)

    @classmethod
    def of(cls, briefing: Briefing, data: Callable[[int], ClientData], device: str) -> Host:
        """Set up from a briefing, in whatever process and on whatever machine; plug-ins come with it."""
        for name, source in briefing.plugins.items():
            load_plugin(name, source)
        recipe = Recipe.model_validate(briefing.recipe)
        card = DataCard.from_json(briefing.card)
        tensors = briefing.initial.tensors
        return cls(
            algorithm=recipe.algorithm(),
            trainer=build_trainer(recipe, card, device, Kernels.of_note(briefing.kernels)),
            initial=ModelState(tensors["parameters"], tensors["statistics"]),
            card=card,
            population=briefing.population,
            schedule=recipe.training.schedule(),
            seed=recipe.seed,
            data=data,
        )

    # Words in, words out

    def answer(self, words: Sequence[Word]) -> list[Word]:
        """Do what is asked, with states beside tasks: what any engine does on the far side of its wire.

        A task that fails is answered by a failure, never by an exception.
        """
        states = {word.client: word.tensors.tensors for word in words if isinstance(word, ClientState)}
        tasks = [word for word in words if isinstance(word, TrainTask | EvaluateTask)]
        try:
            return self._answer(tasks, states)
        except (Exception, SystemExit) as error:
            return [failure(task, error) for task in tasks]

    def _answer(self, tasks: Sequence[Task], states: Mapping[int, State]) -> list[Word]:
        answers: list[Word] = []
        for task in tasks:
            if isinstance(task, TrainTask):
                try:
                    trained, state = self.train(task, states.get(task.client, {}))
                except DivergedError as error:
                    answers.append(failure(task, error))
                    continue
                answers.append(trained)
                if trained.remembers:
                    answers.append(ClientState(task.client, task.round, Message(state)))
        evaluations = [task for task in tasks if isinstance(task, EvaluateTask)]
        return answers + list(self.evaluate(evaluations, states))

    def train(self, task: TrainTask, state: State) -> tuple[Trained, State]:
        """Train a client; give the result, and the state it has from now on. No state is kept that is not finite."""
        client = self.client(task, state, cut=True)
        upload = self.algorithm.train(client, task.message)
        meter = client.meter
        if meter.samples and not math.isfinite(meter.loss):
            raise DivergedError(f"diverged: its loss is {meter.loss}")
        for name, tensor in client.state.items():
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise DivergedError(f"diverged: its own {name} is not finite")
        return Trained(task.client, upload, meter.loss, meter.macs, bool(client.state)), client.state

    def evaluate(self, tasks: Sequence[EvaluateTask], states: Mapping[int, State]) -> list[Evaluated | Failed]:
        """Evaluate clients' personal models, and give no more of them than each task allows.

        Answers that are not finite are no answers: a client that gives such has failed. Where something fails for a
        group, its clients are evaluated one by one: only those fail that fail alone.
        """
        try:
            return self._evaluate(tasks, states)
        except (Exception, SystemExit) as error:
            if len(tasks) == 1:
                return [failure(tasks[0], error)]
        return [answer for task in tasks for answer in self.evaluate([task], states)]

    def _evaluate(self, tasks: Sequence[EvaluateTask], states: Mapping[int, State]) -> list[Evaluated | Failed]:
        personals: dict[int, Personal] = {}
        meters: dict[int, Meter] = {}

        def member(task: EvaluateTask) -> tuple[Client, Personal]:
            client = self.client(task, states.get(task.client, {}))
            personal = self.algorithm.evaluated(client, task.message)
            meters[task.client] = replace(client.meter)
            if task.model:
                personals[task.client] = personal
            return client, personal

        calibration = any(task.final and task.traces for task in tasks)
        found = evaluate(map(member, tasks), calibration, tasks[0].metrics, tasks[0].answers) if tasks else {}
        return [
            self._evaluated(task, found[task.client], meters[task.client], personals.get(task.client)) for task in tasks
        ]

    def _evaluated(
        self, task: EvaluateTask, found: Evaluation, meter: Meter, personal: Personal | None
    ) -> Evaluated | Failed:
        if not found.finite:
            return Failed(task.client, "diverged: its model's answers are not finite", "diverged")
        traces = {}
        if task.traces:
            traces["test"] = found.test.to_message()
            if found.calibration is not None:
                traces["calibration"] = found.calibration.to_message()
        return Evaluated(
            task.client,
            samples=len(found.test),
            correct=found.correct,
            macs=meter.macs,
            alone=found.alone,
            traces=traces,
            own=None if personal is None else Message(self._complete(personal)),
            shared=() if personal is None else tuple(personal.shared),
            metrics=found.metrics,
        )

    def _complete(self, personal: Personal) -> dict[str, Tensor]:
        """Give all of a personal model that is not shared: what a client lacks is as it was at the start."""
        rest = {p.key: p for p in Parts.MODEL | Parts.STATISTICS if self.trainer.layout.count(p)}
        return {
            key: personal.own[key] if key in personal.own else self.trainer.layout.gather(self.initial, part)
            for key, part in rest.items()
            if key not in personal.shared or key in personal.own
        }

    # Clients

    def client(self, task: Task, state: State, cut: bool = False) -> Client:
        """Bring a client to life: its views, its state, its streams; with all of the network, or what it carries."""
        carried = self._carried(task.client) if cut else None
        trainer, initial = carried or (self.trainer, self.initial)
        return Client(
            id=task.client,
            round=task.round,
            data=self.data(task.client),
            state=dict(state),
            initial=initial,
            trainer=trainer,
            schedule=self.schedule,
            seed=self.seed,
            classes=len(self.card.classes),
            final=isinstance(task, EvaluateTask) and task.final,
        )

    def _carried(self, client: int) -> tuple[Trainer, ModelState] | None:
        """Give the smaller network that a client carries, built once per level; nothing for the whole one."""
        full = self.trainer
        level = self.algorithm.level(client, self.population, full.layout.exits)
        if level is None:
            return None
        if level not in self.levels:
            subnetworks = Subnetworks(full.network, full.layout)
            network, layout = subnetworks.carve(level)
            costs = count_costs(network.to("cpu"), self.card.example())
            trainer = Trainer(network, layout, costs, full.device, full.batch_size, full.augmentation)
            self.levels[level] = (trainer, subnetworks.initial(self.initial, level))
        return self.levels[level]


def failure(task: Task, error: BaseException) -> Failed:
    """Say why a task was not done, with the traceback of what nobody foresaw: it may be a plug-in's."""
    if isinstance(error, InputError):
        return Failed(task.client, str(error), "input")
    if isinstance(error, DivergedError):
        return Failed(task.client, str(error), "diverged")
    if isinstance(error, SystemExit):
        return Failed(task.client, f"failed: its work called sys.exit({error.code!r}), which nobody may do in a run")
    return Failed(task.client, "failed:\n" + "".join(traceback.format_exception(error)))


def simulated(dataset: Dataset, partition: Partition, device: str) -> Callable[[int], ClientData]:
    """Open the views of a simulation's clients: slices of one data set, which is moved to the device once."""
    moved = dataset.to(torch.device(device))
    return lambda client: ClientData.of(moved, partition[client])
