"""One client after another in this process: the engine to debug with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xfed.errors import ClientError, InputError
from xfed.evaluation.accuracy import Evaluation
from xfed.federation.host import Host, Task, Trained, named


@dataclass(frozen=True)
class SerialEngine:
    """Runs tasks here and now."""

    host: Host

    def train(self, tasks: Iterable[Task]) -> Iterator[Trained]:
        """Train clients one after another."""
        for task in tasks:
            try:
                yield self.host.train(task)
            except InputError:
                raise
            except Exception as error:
                raise ClientError(f"training {named([task])} failed: {error!r}") from error

    def evaluate(self, groups: Iterable[Sequence[Task]]) -> Iterator[Evaluation]:
        """Evaluate clients one group after another."""
        for group in groups:
            try:
                yield from self.host.evaluate(group)
            except InputError:
                raise
            except Exception as error:
                raise ClientError(f"evaluating {named(group)} failed: {error!r}") from error

    def close(self) -> None:
        """Nothing to let go of."""
