"""One client after another in this process: the engine to debug with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xfed.errors import InputError
from xfed.federation.host import Host, failure, simulated
from xfed.protocol.engine import Engine, Job, engine
from xfed.protocol.words import Evaluated, EvaluateTask, Failed, Trained, TrainTask


@engine("serial")
class SerialEngine(Engine):
    """One client after another in this process, errors with their own traceback: to debug with."""

    imports_script = True

    def open(self, job: Job) -> None:
        """Set up the one host."""
        self._host = Host.of(job.briefing, simulated(job.dataset, job.partition, job.device), job.device)
        self._states = job.states

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        """Train clients one after another."""
        for task in tasks:
            try:
                trained, state = self._host.train(task, self._states.read(task.client, task.state))
            except InputError:
                raise
            except (Exception, SystemExit) as error:
                yield failure(task, error)
                continue
            if trained.remembers:
                self._states.write(task.client, task.round, state)
            yield trained

    def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
        """Evaluate clients one group after another."""
        for group in groups:
            states = {task.client: self._states.read(task.client, task.state) for task in group}
            yield from self._host.evaluate(group, states)
