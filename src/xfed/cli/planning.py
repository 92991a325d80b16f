"""Plans as a person sees them: what is there, what is left, about how long it will take; and carrying them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from xfed.cli.output import Output
from xfed.comparison import Planned, carry_out
from xfed.errors import Interrupted
from xfed.estimates import seconds_left
from xfed.report.terminal import say
from xfed.runs.reader import Run, open_run
from xfed.units import counted, duration

PLAN = click.Option(["--plan", "only_plan"], is_flag=True, help="only say what is left to do")


def carry_out_told(planned: Sequence[Planned], output: Output) -> list[Run]:
    """Carry a plan out, and say before each run what is left; Ctrl-C ends it with advice."""
    tell_plan(planned, output)
    try:
        return carry_out(planned, output.progress, Teller(planned, output))
    except Interrupted:
        say("interrupted; the same command goes on where it stopped", stderr=True)
        raise click.exceptions.Exit(130) from None


def tell_plan(planned: Sequence[Planned], output: Output) -> None:
    """Say how many runs there are, begun and left."""
    if output.quiet:
        return
    runs = {each.root: each for each in planned}.values()
    done = sum(each.done for each in runs)
    begun = sum(each.found is not None and not each.done for each in runs)
    text = f"{counted(len(runs), 'run')}: {done} finished"
    if begun:
        text += f", {begun} begun"
    if done < len(runs):
        text += f", {len(runs) - done} left, {duration(seconds_left(planned))}"
    say(text, stderr=True)


class Teller:
    """Says before each run what is left, refined by what the runs so far took."""

    def __init__(self, planned: Sequence[Planned], output: Output) -> None:
        self._planned, self._output = planned, output

    def __call__(self, left: Sequence[Planned]) -> None:
        """Name the run that begins."""
        if self._output.quiet:
            return
        waiting = {each.root for each in left}
        now = [
            each if each.done or each.root in waiting else replace(each, found=open_run(each.root))
            for each in self._planned
        ]
        runs = {each.root for each in now}
        e = left[0].experiment
        text = f"run {len(runs) - len(left) + 1} of {len(runs)}: {e.method} on {e.dataset}, seed {e.seed}"
        say(f"{text}; {duration(seconds_left(now))} left", stderr=True)
