"""All commands by name, each in a module that is imported when the command is called."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from xfed.errors import unknown

OVERVIEW = {
    "Train": {
        "run": ("training", "Train a method; with no argument, X-FED on the embedded data."),
        "compare": ("training", "Run several methods alike, or reuse runs; print one table."),
        "sweep": ("sweeping", "Run a grid of methods, settings and seeds, or reuse runs; one table."),
        "resume": ("training", "Continue a run after any interruption, or beyond its end."),
        "paper": ("paper", "The paper's tables and figures: list them, or run one by its name."),
        "flower": ("flower", "Federations of real devices: an app, a demo, keys, a node's export."),
    },
    "Look at results": {
        "runs": ("runs", "List past runs."),
        "show": ("showing", "Summarise a run, or several in one table."),
        "plot": ("showing", "Draw accuracy per exit and over rounds, of one run or of several."),
        "check": ("checking", "Say whether a run is whole, and what can be recovered."),
        "diff": ("runs", "Say in which settings and results two runs differ."),
        "report": ("report", "Write one interactive page about runs, to open from disk."),
    },
    "Leave early": {
        "calibrate": ("inference", "Choose when to leave early, within a budget, a loss or a risk."),
        "case-study": ("inference", "Measure early exit against static models, sample by sample."),
    },
    "Go to a device": {
        "export": ("deployment", "Write a bundle that devices run without torch."),
        "verify": ("deployment", "Prove that a bundle gives PyTorch's numbers and really skips."),
        "sign": ("deployment", "Sign a bundle, so that devices can refuse another's."),
        "device-bench": ("deployment", "Measure how long each exit takes on this device."),
        "serve": ("serving", "Answer requests over HTTP, each within its own budget."),
    },
    "See what there is": {
        "methods": ("listing", "List the methods there are."),
        "datasets": ("listing", "List the data sets there are."),
        "models": ("listing", "List the models there are, or describe one."),
        "engines": ("listing", "List the engines there are."),
        "data": ("data", "Data sets: what is here, how to get it, how it is dealt out."),
        "completion": ("completion", "Print what makes a shell complete xfed's commands and options."),
    },
}
"""Where each command is made, and the line that the overview shows."""

COMMANDS = {name: entry for section in OVERVIEW.values() for name, entry in section.items()}


class FrontDoor(click.Group):
    """The group of all commands; building one imports its module, listing them imports nothing."""

    def __init__(self, arguments: Sequence[str]) -> None:
        version = click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
        )
        super().__init__(
            "xfed",
            params=[version],
            help="Personalized federated learning of early-exit networks. Start with 'xfed run'.",
            epilog="'xfed COMMAND -h' explains a command.",
            context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]},
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

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names; of another name, say which ones are near."""
        if (
            not context.resilient_parsing
            and arguments
            and not arguments[0].startswith("-")
            and arguments[0] not in COMMANDS
        ):
            raise unknown("command", arguments[0], COMMANDS)
        return super().resolve_command(context, arguments)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, without importing any."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, context, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table above."""
        for title, section in OVERVIEW.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import xfed

        click.echo(f"xfed {xfed.__version__}")
        context.exit()
