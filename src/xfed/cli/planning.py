"""What a person sees of a plan: what is there, what is left, and about how long it will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from xfed.comparison import Planned
from xfed.estimates import in_words, seconds_left
from xfed.runs.reader import open_run


def tell_plan(planned: Sequence[Planned]) -> None:
    """Say how many runs there are, begun and left."""
    runs = {each.root: each for each in planned}.values()
    done = sum(each.done for each in runs)
    begun = sum(each.found is not None and not each.done for each in runs)
    text = f"{len(runs)} runs: {done} finished"
    if begun:
        text += f", {begun} begun"
    if done < len(runs):
        text += f", {len(runs) - done} left, {in_words(seconds_left(planned))}"
    Console(stderr=True).print(text, highlight=False)


class Teller:
    """Says before each run what is left, refined by what the runs so far took."""

    def __init__(self, planned: Sequence[Planned]) -> None:
        self._planned = planned

    def __call__(self, left: Sequence[Planned]) -> None:
        """Name the run that begins."""
        waiting = {each.root for each in left}
        now = [
            each if each.done or each.root in waiting else replace(each, found=open_run(each.root))
            for each in self._planned
        ]
        runs = {each.root for each in now}
        e = left[0].experiment
        text = f"run {len(runs) - len(left) + 1} of {len(runs)}: {e.method} on {e.dataset}, seed {e.seed}"
        Console(stderr=True).print(f"{text}; {in_words(seconds_left(now))} left", highlight=False)
