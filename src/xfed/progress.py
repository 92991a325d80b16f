"""What people see while a run goes on: a bar, lines where there is no terminal, and a log file that stays."""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from xfed.evaluation.summary import RoundAccuracy
from xfed.experiment import Experiment
from xfed.federation.watching import Watcher, Work
from xfed.protocol.words import Failed
from xfed.runs.records import RoundRecord
from xfed.units import duration

Shown = bool | Literal["verbose"]
"""Nothing, the usual, or a line for every client and round."""

LINE_SECONDS, REDRAW_SECONDS = 10.0, 0.1


class Pace:
    """How far a run is, and how long the rest will take at the speed so far: known after the first client.

    The first round starts workers and is slow; as soon as there is another, it no longer counts.
    """

    def __init__(self, rounds: int, done: int) -> None:
        self.rounds, self.round = rounds, done
        self.work: Work = "training"
        self.clients = self.answered = 0
        self._pace: float | None = None
        self._first, self._before, self._began = done + 1, done, time.perf_counter()

    def begin(self, round: int, work: Work, clients: int) -> None:
        """Begin a piece of a round."""
        if round == self._first + 1 and work == "training":
            self._before, self._began = self._first, time.perf_counter()
        self.round, self.work, self.clients, self.answered = round, work, clients, 0

    @property
    def rounds_done(self) -> float:
        """Rounds behind us, the present one in part: evaluation is its last, unmeasured bit."""
        if self.round < self._first:
            return self.round
        trained = self.answered / max(self.clients, 1) if self.work == "training" else 1.0
        return self.round - 1 + trained

    def left(self) -> float | None:
        """Give seconds; nothing before the first answer."""
        behind = self.rounds_done - self._before
        if behind > 0:
            self._pace = (time.perf_counter() - self._began) / behind
        return None if self._pace is None else self._pace * (self.rounds - self.rounds_done)


class Display(Watcher):
    """A run's title, pace and latest accuracy; subclasses show them."""

    def __init__(self, title: str, rounds: int, done: int, earlier: Sequence[RoundAccuracy]) -> None:
        self.title, self.pace = title, Pace(rounds, done)
        self.accuracy = percent(earlier[-1]) if earlier else ""

    def work_began(self, round: int, work: Work, clients: int) -> None:
        """Begin a piece of a round."""
        self.pace.begin(round, work, clients)
        self.refresh()

    def client_answered(self, client: int, failure: Failed | None) -> None:
        """Move on within the round."""
        self.pace.answered += 1
        self.refresh()

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Take the accuracy in."""
        if accuracy is not None:
            self.accuracy = percent(accuracy)
        self.refresh()

    def refresh(self) -> None:
        """Show what is new."""

    def status(self) -> str:
        """Write where the run is, in less than a line."""
        pace, left = self.pace, self.pace.left()
        kind = "eval " if pace.work == "evaluation" else ""
        told = [f"round {pace.round}/{pace.rounds}", f"{kind}{pace.answered}/{pace.clients}"]
        told += [self.accuracy] if self.accuracy else []
        told += [f"{duration(left)} left"] if left is not None else []
        return " · ".join(told)


class Bar(Display):
    """A bar on a terminal."""

    def __init__(self, console: Console, *run: Any) -> None:
        super().__init__(*run)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[status]}"))
        self._progress = Progress(*columns, console=console, refresh_per_second=4)
        self._task = self._progress.add_task(
            self.title, total=self.pace.rounds, completed=self.pace.round, status="starting"
        )

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def refresh(self) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=self.pace.rounds_done, status=self.status())


class NotebookBar(Display):
    """A bar in a notebook's output cell."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        notebook: Any = import_module("IPython.display")
        self._html, self._drawn = notebook.HTML, 0.0
        self._handle = notebook.display(self._html(self._drawing("starting")), display_id=True)

    def _drawing(self, status: str) -> str:
        pace = self.pace
        bar = f'<progress value="{pace.rounds_done:.3f}" max="{pace.rounds}"></progress>'
        return f"{html.escape(self.title)} {bar} {html.escape(status)}"

    def refresh(self) -> None:
        """Draw anew, a few times a second at most."""
        now = time.perf_counter()
        if now - self._drawn >= REDRAW_SECONDS or self.pace.round == self.pace.rounds:
            self._handle.update(self._html(self._drawing(self.status())))
            self._drawn = now


class Lines(Display):
    """Lines: the first round, evaluated rounds, and in between one every ten seconds; or all rounds and clients."""

    def __init__(self, console: Console, everything: bool, *run: Any) -> None:
        super().__init__(*run)
        self._console, self._everything = console, everything
        self._said = time.perf_counter()
        self._first = self.pace.round + 1

    def client_answered(self, client: int, failure: Failed | None) -> None:
        """Say so if everything is wanted, or if nothing was said for a while."""
        super().client_answered(client, failure)
        pace = self.pace
        if self._everything:
            done = "trained" if pace.work == "training" else "evaluated"
            told = f"failed: {last_line(failure.reason)}" if failure else done
            self._say(f"round {pace.round}/{pace.rounds}, client {client} {told} ({pace.answered}/{pace.clients})")
        elif self._silent_for_long():
            self._say(self.status())

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Say how the round went."""
        super().round_ended(record, accuracy)
        due = record.round == self._first or accuracy is not None or self._silent_for_long()
        if due or self._everything:
            left = self.pace.left()
            later = f", {duration(left)} left" if left and record.round < self.pace.rounds else ""
            self._say(round_line(record, accuracy, self.pace.rounds) + later)

    def _silent_for_long(self) -> bool:
        return time.perf_counter() - self._said >= LINE_SECONDS

    def _say(self, text: str) -> None:
        self._said = time.perf_counter()
        self._console.print(f"{self.title}: {text}", highlight=False, soft_wrap=True, markup=False)


class LogFile(Watcher):
    """Lines with the time in the run directory, one for every round and every failure; a resumed run goes on there."""

    def __init__(self, path: Path, title: str, rounds: int) -> None:
        self._path, self._title, self._rounds = path, title, rounds

    def write(self, text: str) -> None:
        """Add a line."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{now} {self._title}: {text}\n")

    def client_answered(self, client: int, failure: Failed | None) -> None:
        """Note a failure with its whole reason."""
        if failure is not None:
            self.write(f"client {client} {failure.reason.strip()}")

    def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
        """Note how the round went."""
        self.write(round_line(record, accuracy, self._rounds))


def round_line(record: RoundRecord, accuracy: RoundAccuracy | None, rounds: int) -> str:
    """Tell what a round came to in one line."""
    told = [f"round {record.round}/{rounds}", f"loss {record.loss:.4f}"]
    if record.failed:
        told.append(f"{record.replies} of {record.clients} clients")
    told.append(f"{record.train_seconds + record.evaluation_seconds:.1f} s")
    if accuracy is not None:
        told.append(f"accuracy {percent(accuracy)}")
    return ", ".join(told)


def percent(accuracy: RoundAccuracy) -> str:
    """Write an accuracy: mean ± std over clients."""
    return f"{accuracy.mean:.1%} ± {accuracy.std:.1%}"


def last_line(reason: str) -> str:
    """Give the line of a traceback that says most."""
    return reason.strip().splitlines()[-1]


@contextmanager
def showing(
    shown: Shown, log: Path, experiment: Experiment, done: int, earlier: Sequence[RoundAccuracy]
) -> Iterator[list[Watcher]]:
    """Show a run to people as they want it, and write its log; `done` rounds are behind it."""
    rounds = experiment.training.rounds
    run = (f"{experiment.method} on {experiment.dataset}, seed {experiment.seed}", rounds, done, earlier)
    file = LogFile(log, run[0], rounds)
    watchers: list[Watcher] = [file]
    console = Console(stderr=True)
    with ExitStack() as open_bars:
        if shown and console.is_jupyter:
            watchers.append(NotebookBar(*run))
        elif shown and console.is_terminal:
            watchers.append(open_bars.enter_context(Bar(console, *run)))
        if shown == "verbose" or (shown and not (console.is_terminal or console.is_jupyter)):
            watchers.append(Lines(console, shown == "verbose", *run))
        place = experiment.place
        file.write(f"{'resumed after' if done else 'started,'} {done or rounds} rounds, engine {place.engine}")
        try:
            yield watchers
        except KeyboardInterrupt:
            file.write("interrupted")
            raise
        except BaseException as error:
            reason = last_line(str(error)) if str(error).strip() else ""
            file.write(f"stopped by {type(error).__name__}{': ' * bool(reason)}{reason}")
            raise
        file.write("finished")
