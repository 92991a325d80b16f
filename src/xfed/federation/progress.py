"""What a person sees while a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from xfed.evaluation.summary import RoundAccuracy
from xfed.runs.records import RoundRecord


class ProgressBar:
    """Round, accuracy so far, time left; where there is no terminal, a line per evaluation instead."""

    def __init__(self, title: str, rounds: int, done: int, earlier: Sequence[RoundAccuracy] = ()) -> None:
        self._console = Console(stderr=True)
        self._title, self._rounds, self._done = title, rounds, done
        self._accuracy = _percent(earlier[-1]) if earlier else "not evaluated yet"
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("round"),
            MofNCompleteColumn(),
            TextColumn("accuracy {task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            speed_estimate_period=600,
        )

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        self._task = self._progress.add_task(
            self._title, total=self._rounds, completed=self._done, accuracy=self._accuracy
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Move the bar on."""
        if accuracy is not None:
            self._accuracy = _percent(accuracy)
            if not self._console.is_terminal:
                self._console.print(
                    f"{self._title}: round {record.round}/{self._rounds}, accuracy {self._accuracy}",
                    highlight=False,
                )
        self._progress.update(self._task, completed=record.round, accuracy=self._accuracy)


def _percent(accuracy: RoundAccuracy) -> str:
    return f"{accuracy.mean:.1%} ± {accuracy.std:.1%}"
