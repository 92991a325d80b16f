"""Who watches a run go by: progress bars, log files, trackers, and functions of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from xfed.evaluation.summary import RoundAccuracy
from xfed.protocol.words import Failed, Result
from xfed.runs.records import RoundRecord

Work = Literal["training", "evaluation"]
Callback = Callable[[RoundRecord, RoundAccuracy | None], object]
"""A function that is called after each round; the accuracy is there where the round was evaluated."""


class Watcher:
    """Sees a run go by. Each method does nothing unless a subclass says otherwise; an exception stops the run."""

    def work_began(self, round: int, work: Work, clients: int) -> None:
        """Hear that so many clients are asked to train, or to evaluate."""

    def client_answered(self, client: int, failure: Failed | None) -> None:
        """Hear that a client's answer is there, in whatever order they come."""

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Hear what a completed round came to."""


class Calling(Watcher):
    """Calls a plain function after each round."""

    def __init__(self, function: Callback) -> None:
        self._function = function

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Call it."""
        self._function(record, accuracy)


R = TypeVar("R", bound=Result)


class Watchers:
    """All who watch one run."""

    def __init__(self, everyone: Sequence[Watcher | Callback] = ()) -> None:
        self._everyone = [each if isinstance(each, Watcher) else Calling(each) for each in everyone]

    def work(self, results: Iterable[R], round: int, work: Work, clients: int) -> Iterator[R]:
        """Pass results on as they come, and say so."""
        for watcher in self._everyone:
            watcher.work_began(round, work, clients)
        for result in results:
            for watcher in self._everyone:
                watcher.client_answered(result.client, result if isinstance(result, Failed) else None)
            yield result

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Say what a round came to."""
        for watcher in self._everyone:
            watcher.round_ended(record, accuracy)
