"""A progress bar for what takes long: downloads, and decoding for the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(text: str, total: int | None, size_in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar on the terminal (nothing elsewhere); call what is given with each amount done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    done = DownloadColumn() if size_in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda amount: bar.advance(task, amount)
