"""One client after another in this process: the engine to debug with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xfed.errors import ClientError, InputError
from xfed.evaluation.accuracy import Evaluation
from xfed.federation.host import Host, Task, Trained


@dataclass(frozen=True)
class SerialEngine:
    """Runs tasks here and now."""

    host: Host

    def train(self, tasks: Sequence[Task]) -> Iterator[Trained]:
        """Train clients one after another."""
        for task in tasks:
            try:
                yield self.host.train(task)
            except InputError:
                raise
            except Exception as error:
                raise ClientError(f"training client {task.client} in round {task.round} failed: {error!r}") from error

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        """Evaluate clients one after another."""
        for task in tasks:
            try:
                yield self.host.evaluate(task)
            except Exception as error:
                raise ClientError(f"evaluating client {task.client} in round {task.round} failed: {error!r}") from error

    def close(self) -> None:
        """Nothing to let go of."""
