"""`xfed run --dry-run`: all settings, and what the run will take on this machine."""

from __future__ import annotations

from xfed.cli.output import Output
from xfed.experiment import Experiment
from xfed.rehearsal import rehearse
from xfed.report.terminal import show_table


def tell_rehearsal(experiment: Experiment, output: Output) -> None:
    """Try an experiment out and print what is known of it before it runs."""
    tried = rehearse(experiment)
    if output.quiet:
        return
    output.say(experiment.resolved().to_yaml().rstrip())
    output.say("")
    rounds = tried.experiment.training.rounds
    show_table(["in one round", "round 1", f"round {rounds}", "run, all clients"], tried.by_round(), wide=True)
    for line in tried.in_all():
        output.say(line)
