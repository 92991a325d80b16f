"""A table or figure of the paper: which runs it needs, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xfed.comparison import Planned, Reuse, plan_runs
from xfed.errors import unknown
from xfed.experiment import Experiment
from xfed.paper.scales import TASKS, Choice, Wanted, in_words
from xfed.report.drawing import Drawing
from xfed.report.sheet import Cell, Sheet
from xfed.runs.reader import Run


@dataclass(frozen=True)
class Results:
    """The runs of a table or figure: for each that is wanted, one per seed."""

    title: str
    choice: Choice
    runs: Mapping[Wanted, Sequence[Run]]

    def __iter__(self) -> Iterator[tuple[Wanted, Sequence[Run]]]:
        return iter(self.runs.items())

    @property
    def datasets(self) -> list[str]:
        """Data sets of the paper that are shown, in order."""
        return list(dict.fromkeys(wanted.dataset for wanted in self.runs))

    def on(self, dataset: str, alpha: float | None = None) -> dict[Wanted, Sequence[Run]]:
        """Restrict to one data set."""
        return {w: r for w, r in self.runs.items() if w.dataset == dataset and alpha in (None, w.alpha)}

    @property
    def heading(self) -> str:
        """Title with the scale."""
        return f"{self.title}, scale {self.choice.scale}"

    @property
    def _scale(self) -> str:
        return in_words(self.choice.scale, self.datasets, self.choice.changes)

    def notes(self, text: str) -> str:
        """Say the scale, the seeds and what the numbers are."""
        seeds = ", ".join(map(str, self.choice.seeds))
        return f"{self._scale} Seeds: {seeds}. {text}"

    def sheet(self, header: Sequence[str], rows: Sequence[Sequence[Cell]], text: str, title: str = "") -> Sheet:
        """Lay a table out, with the scale in title and notes."""
        return Sheet(f"{self.heading}{': ' * bool(title)}{title}", header, rows, self.notes(text))

    def drawing(self, panels: int, width: float = 5.2) -> Drawing:
        """Open a figure, with the scale in title and footer."""
        return Drawing.of(panels, self.heading, self._scale, width)


@dataclass(frozen=True)
class Product:
    """Tables and figures by file name."""

    sheets: Mapping[str, Sheet]
    drawings: Mapping[str, Drawing]

    def write(self, folder: Path) -> list[Path]:
        """Write all files."""
        written = [path for name, sheet in self.sheets.items() for path in sheet.write(folder / name)]
        return written + [path for name, drawing in self.drawings.items() for path in drawing.save(folder / name)]


@dataclass(frozen=True)
class Artefact:
    """A named table or figure."""

    name: str
    place: str
    title: str
    wanted: Callable[[Choice], Sequence[Wanted]]
    make: Callable[[Results], Product]

    def experiments(self, choice: Choice) -> dict[Wanted, list[Experiment]]:
        """Describe the runs that are needed."""
        planned = {}
        for wanted in choice.of(self.wanted(choice)):
            values = {**wanted.values(choice.scale, choice.changes), **choice.place}
            planned[wanted] = [Experiment.from_mapping({**values, "seed": seed}) for seed in choice.seeds]
        return planned

    def plan(self, choice: Choice, out: Path, reuse: Reuse) -> list[Planned]:
        """Find out which of the runs are there."""
        return plan_runs([each for group in self.experiments(choice).values() for each in group], out, reuse)

    def produce(self, choice: Choice, runs: Sequence[Run]) -> Product:
        """Make tables and figures of the runs, given in the order of the plan."""
        given = iter(runs)
        by_wanted = {wanted: [next(given) for _ in group] for wanted, group in self.experiments(choice).items()}
        return self.make(Results(f"{self.title} ({self.place})", choice, by_wanted))

    def folder(self, choice: Choice, out: Path) -> Path:
        """Name the folder that the files go to."""
        return out / f"{self.name}-{choice.scale}"


def check_datasets(names: Sequence[str] | None) -> None:
    """Refuse what is no data set of the paper."""
    for name in names or ():
        if name not in TASKS:
            raise unknown("data set of the paper", name, TASKS)
