"""Tables on a terminal: as many columns as fit, the important ones first, and captions of two lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xfed.spelling import spelt

GAP = 2
CAPTION_LINES = 2


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
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for column in chosen:
        justify = "left" if column < texts else "right"
        table.add_column(Text(header[column]), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for number, row in enumerate(body):
        table.add_row(*(Text(row[column]) for column in chosen), style=styles[number] if styles else None)
    needed = console.measure(table, options=console.options.update(width=10_000)).maximum
    if title:
        console.print(Text(title, style="italic"), soft_wrap=True)
    Console(width=max(console.width, needed)).print(table)
    return len(chosen) < len(header)


def fitting(header: Sequence[str], body: Sequence[Sequence[str]], ranks: Sequence[int], width: int) -> list[int]:
    """Choose columns by rank as long as they fit into a width, the first one always; give them in their order."""
    widths = [max(cell_len(row[column]) for row in (header, *body)) for column in range(len(header))]
    chosen: list[int] = []
    for column in sorted(range(len(header)), key=lambda column: ranks[column]):
        needed = sum(widths[each] + GAP for each in [*chosen, column]) - GAP
        if not chosen or needed <= width:
            chosen.append(column)
    return sorted(chosen)


def show_caption(text: str, wide: bool = False) -> None:
    """Print what must be said with a table: whole sentences, on two lines at most unless all is wanted."""
    console = Console()
    text = spelt(text, console.encoding)
    told = text if wide else first_sentences(text, CAPTION_LINES * console.width)
    console.print(Text(told, style="dim"))


def first_sentences(text: str, room: int) -> str:
    """Give as many whole sentences as there is room for, at least one."""
    found = ""
    for sentence in re.split(r"(?<=\.) (?=[^\d])", text):
        longer = f"{found} {sentence}".strip()
        if found and len(longer) > room - 8:  # lines end before words that would not fit
            break
        found = longer
    return found
