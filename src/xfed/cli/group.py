"""All commands by name, each in a module that is imported when the command is called."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click

COMMANDS = {
    "run": ("training", "Train a method; with no argument, X-FED on the embedded data."),
    "compare": ("training", "Run several methods alike, or reuse runs; print one table."),
    "resume": ("training", "Continue a run after any interruption."),
    "show": ("training", "Summarise a run."),
    "sweep": ("sweeping", "Run a grid of methods, settings and seeds, or reuse runs; one table."),
    "paper": ("paper", "The paper's tables and figures: list them, or run one by its name."),
    "report": ("report", "Write one interactive page about runs, to open from disk."),
    "runs": ("runs", "List past runs."),
    "diff": ("runs", "Say in which settings and results two runs differ."),
    "calibrate": ("inference", "Choose when to leave early, within a budget, a loss or a risk."),
    "case-study": ("inference", "Measure early exit against static models, sample by sample."),
    "export": ("deployment", "Write a bundle that devices run without torch."),
    "verify": ("deployment", "Prove that a bundle gives PyTorch's numbers and really skips."),
    "sign": ("deployment", "Sign a bundle, so that devices can refuse another's."),
    "device-bench": ("deployment", "Measure how long each exit takes on this device."),
    "serve": ("serving", "Answer requests over HTTP, each within its own budget."),
    "flower": ("flower", "Federations of real devices: an app, a demo on this machine, keys, a node's export."),
    "data": ("data", "Data sets: what is here, how to get it, how it is dealt out."),
    "methods": ("listing", "List the methods there are, with their settings."),
    "datasets": ("listing", "List the data sets there are, with their settings."),
    "models": ("listing", "List the models there are, with their settings, or describe one."),
    "engines": ("listing", "List the engines there are, with their settings."),
}
"""Where each command is made, and the line that the overview shows."""


class FrontDoor(click.Group):
    """The group of all commands; building one imports its module, listing them imports nothing."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(
            "xfed",
            help="Personalized federated learning of early-exit networks.",
            context_settings={"max_content_width": 110},
        )
        self._arguments = arguments

    def list_commands(self, context: click.Context) -> list[str]:
        """Give the names, in the order in which people meet them."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import and build one command; its --help shows the settings of the components named in the arguments."""
        if name not in COMMANDS:
            return None
        home = COMMANDS[name][0]
        made: list[click.Command] = getattr(import_module(f"xfed.cli.{home}"), f"{home}_commands")(self._arguments)
        return next(command for command in made if command.name == name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
