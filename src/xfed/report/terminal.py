"""Lines and tables on a terminal, all in one style: paths as they are, tables that fit, captions of two lines."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from xfed.spelling import spelt

GAP = 2
CAPTION_LINES = 2
MORE = " --wide: more."


def say(text: str, stderr: bool = False) -> None:
    """Print a line as it is, whole even where it is longer than the terminal."""
    Console(stderr=stderr).print(Text(text), soft_wrap=True)


def show_listing(
    header: Sequence[str],
    body: Sequence[Sequence[str | Text]],
    *,
    title: str = "",
    whole: int = 1,
    numbers: Container[int] = (),
    apart: bool = False,
) -> None:
    """Print a table of words: after the first `whole` columns, text goes on in the next line; `apart`: rows too."""
    console, table = Console(), _table(between_rows=int(apart))
    for column, name in enumerate(header):
        justify: JustifyMethod = "right" if column in numbers else "left"
        table.add_column(Text(spelt(name, console.encoding)), justify=justify, no_wrap=column < whole, overflow="fold")
    for row in body:
        table.add_row(*(Text(spelt(cell, console.encoding)) if isinstance(cell, str) else cell for cell in row))
    _print_title(title)
    console.print(table)


def show_table(
    header: Sequence[str],
    body: Sequence[Sequence[str]],
    *,
    title: str = "",
    ranks: Sequence[int] | None = None,
    texts: int = 1,
    styles: Sequence[str] | None = None,
    wide: bool = False,
) -> bool:
    """Print a table; of columns that do not fit, those of the highest rank are left out. Tell whether any was.

    The first `texts` columns stand to the left, the others are numbers. Without ranks, the last columns go first.
    """
    console = Console()
    header = [spelt(cell, console.encoding) for cell in header]
    body = [[spelt(cell, console.encoding) for cell in row] for row in body]
    chosen = list(range(len(header)))
    if not wide:
        chosen = fitting(header, body, ranks or range(len(header)), console.width)
    table = _table()
    for column in chosen:
        justify: JustifyMethod = "left" if column < texts else "right"
        table.add_column(Text(header[column]), justify=justify, no_wrap=True)
    for number, row in enumerate(body):
        table.add_row(*(Text(row[column]) for column in chosen), style=styles[number] if styles else None)
    needed = console.measure(table, options=console.options.update(width=10_000)).maximum
    _print_title(title)
    Console(width=max(console.width, needed)).print(table)
    return len(chosen) < len(header)


def _table(between_rows: int = 0) -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1), leading=between_rows)


def _print_title(title: str) -> None:
    if title:
        Console().print(Text(title, style="italic"), soft_wrap=True)


def fitting(header: Sequence[str], body: Sequence[Sequence[str]], ranks: Sequence[int], width: int) -> list[int]:
    """Choose columns by rank as long as they fit into a width, the first one always; give them in their order."""
    widths = [max(cell_len(row[column]) for row in (header, *body)) for column in range(len(header))]
    chosen: list[int] = []
    for column in sorted(range(len(header)), key=lambda column: ranks[column]):
        needed = sum(widths[each] + GAP for each in [*chosen, column]) - GAP
        if not chosen or needed <= width:
            chosen.append(column)
    return sorted(chosen)


def show_caption(text: str, wide: bool = False, hidden: bool = False) -> None:
    """Print what must be said with a table: whole sentences, on two lines at most unless all is wanted.

    Where columns are hidden, it ends with how to see them.
    """
    console = Console()
    more = MORE * hidden
    text = spelt(text, console.encoding)
    told = text if wide else first_sentences(text, CAPTION_LINES * console.width - len(more))
    console.print(Text((told + more).strip(), style="dim"))


def first_sentences(text: str, room: int) -> str:
    """Give as many whole sentences as there is room for, at least one."""
    found = ""
    for sentence in re.split(r"(?<=\.) (?=[^\d])", text):
        longer = f"{found} {sentence}".strip()
        if found and len(longer) > room - 8:  # lines end before words that would not fit
            break
        found = longer
    return found
