"""A table of any shape, written as Markdown, CSV and LaTeX from the same cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xfed.files import write_text
from xfed.report.terminal import show_caption, show_table
from xfed.runs.reader import Run
from xfed_runtime.answers import Answer

SPECIAL = re.compile(r"[&%$#_{}~^\\]")
SPELT_OUT = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
IN_MATH = {"±": r"\pm", "×": r"\times", "≈": r"\approx", "−": "-", "ε": r"\varepsilon", "μ": r"\mu", "λ": r"\lambda",
           "δ": r"\delta", "η": r"\eta", "ρ": r"\rho", "α": r"\alpha", "≤": r"\le", "≥": r"\ge"}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A value for a cell; spreads over clients and over seeds are kept apart."""

    value: float
    clients: float | None = None
    seeds: float | None = None
    digits: int = 2

    def __str__(self) -> str:
        text = f"{self.value:,.{self.digits}f}"
        if self.clients is not None:
            text += f" ± {self.clients:.{self.digits}f}"
        if self.seeds is not None:
            text += f" (seeds ± {self.seeds:.{self.digits}f})"
        return text


Cell = Number | str | None


@dataclass(frozen=True)
class Sheet:
    """Header, rows and what must be said with them."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: str

    def write(self, stem: Path) -> list[Path]:
        """Write `stem`.md, .csv and .tex."""
        made = {".md": self.markdown(), ".csv": self.comma_separated(), ".tex": self.latex()}
        for ending, text in made.items():
            write_text(stem.with_suffix(ending), text)
        return [stem.with_suffix(ending) for ending in made]

    def markdown(self) -> str:
        """Write a heading, the table and the notes."""
        lines = [self.header, ["---" if self._is_text(j) else "---:" for j in range(len(self.header))]]
        lines += [[_shown(cell).replace("|", r"\|") for cell in row] for row in self.rows]
        return "\n".join(
            [f"## {self.title}", "", *("| " + " | ".join(line) + " |" for line in lines), "", self.notes, ""]
        )

    def comma_separated(self) -> str:
        """Write numbers with all digits, and each spread in a column of its own."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        spreads = [(self._has(j, "clients"), self._has(j, "seeds")) for j in range(len(self.header))]
        header: list[str] = []
        for name, (clients, seeds) in zip(self.header, spreads, strict=True):
            header += [name, *([f"{name}, std over clients"] * clients), *([f"{name}, std over seeds"] * seeds)]
        writer.writerow(header)
        for row in self.rows:
            line: list[object] = []
            for cell, (clients, seeds) in zip(row, spreads, strict=True):
                number = cell if isinstance(cell, Number) else None
                line.append(_shown(cell) if number is None else number.value)
                line += [number.clients if number else None] * clients + [number.seeds if number else None] * seeds
            writer.writerow(["" if value is None else value for value in line])
        return text.getvalue()

    def latex(self) -> str:
        """Write a tabular for the package booktabs, in a table with a caption."""
        columns = "".join("l" if self._is_text(j) else "r" for j in range(len(self.header)))
        body = [" & ".join(_escaped(_shown(cell)) for cell in row) + r" \\" for row in self.rows]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_escaped(self.title)}. {_escaped(self.notes)}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                " & ".join(map(_escaped, self.header)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def show(self, wide: bool = False) -> None:
        """Print the table to the terminal, with what of the notes fits two lines; files hold all of both."""
        texts = next((j for j in range(len(self.header)) if not self._is_text(j)), len(self.header))
        body = [[_shown(cell) for cell in row] for row in self.rows]
        hidden = show_table(self.header, body, title=self.title, texts=texts, wide=wide)
        show_caption(self.notes, wide, hidden)

    def _is_text(self, column: int) -> bool:
        return any(isinstance(row[column], str) for row in self.rows)

    def _has(self, column: int, spread: str) -> bool:
        return any(getattr(row[column], spread, None) is not None for row in self.rows)


def _shown(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _escaped(text: str) -> str:
    text = SPECIAL.sub(lambda found: SPELT_OUT.get(found[0], "\\" + found[0]), text)
    return "".join(f"${IN_MATH[letter]}$" if letter in IN_MATH else letter for letter in text)


def accuracy(runs: Sequence[Run], exit: int | None = None, answers: Answer | None = None) -> Number:
    """Give the last evaluation in %: averaged over exits or of one (from 0); runs differ by their seed alone."""
    last = [run.summary(answers).last for run in runs]
    means = [100 * (each.mean if exit is None else each.exits[exit]) for each in last]
    return over_seeds(means, [100 * (each.std if exit is None else each.exit_stds[exit]) for each in last])


def over_seeds(means: Sequence[float], spreads: Sequence[float] | None = None) -> Number:
    """Average over seeds; the spread over clients is averaged too, that over seeds (n − 1) stands beside it."""
    clients = None if spreads is None else float(np.mean(spreads))
    return Number(float(np.mean(means)), clients, float(np.std(means, ddof=1)) if len(means) > 1 else None)
