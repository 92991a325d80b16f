"""`xfed completion`: commands, options and their values at the press of a key."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from click.shell_completion import get_completion_class
from click.shell_completion import split_arg_string as split

VARIABLE = "_XFED_COMPLETE"
SHELLS = {
    "bash": 'put  eval "$(xfed completion bash)"  into ~/.bashrc',
    "zsh": 'put  eval "$(xfed completion zsh)"  into ~/.zshrc, after compinit',
    "fish": "xfed completion fish > ~/.config/fish/completions/xfed.fish",
}


def completion_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command."""
    how = "\n".join(f"{shell}: {text}" for shell, text in SHELLS.items())
    return [
        click.Command(
            "completion",
            callback=_completion,
            params=[click.Argument(["shell"], type=click.Choice(list(SHELLS)))],
            help=f"Print what makes a shell complete commands, options and their values.\n\n\b\n{how}",
        )
    ]


def _completion(shell: str) -> None:
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(click.get_current_context().find_root().command, {}, "xfed", VARIABLE).source())


def words_so_far(arguments: Sequence[str]) -> Sequence[str]:
    """Give the words on the line that a shell wants completed, in place of our own arguments."""
    return split(os.environ.get("COMP_WORDS", ""))[1:] if completing() else arguments


def completing() -> bool:
    """Tell whether a shell asks what a line could go on with."""
    return VARIABLE in os.environ
