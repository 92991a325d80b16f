"""What a block that is not run must hold: options that exist, settings that are allowed, code that compiles."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import click
import yaml

from tests.pages.blocks import ROOT, Block
from xfed.cli.group import FrontDoor

BINARIES = Path(sys.executable).parent
INSTALL = re.compile(
    r"pip install -c constraints\.txt (?:\./runtime '?\.(?:\[([\w,]+)\])?'?|'xfed\[([\w,]+)\]')(?:\s+#.*)?\Z"
)


def check(block: Block) -> None:
    """Parse a block without carrying it out."""
    if block.language == "console":
        assert block.commands, f"{block}: no line begins with '$ '"
        for command in block.commands:
            check_command(command)
    elif block.language == "bash":
        subprocess.run(["bash", "-n"], input=block.content, text=True, check=True)
    elif block.language == "python":
        compile(block.content, str(block), "exec")
    elif block.language == "json":
        json.loads(block.content)
    elif block.language == "yaml":
        yaml.safe_load(block.content)
    elif block.language == "toml":
        tomllib.loads(block.content)


def check_command(command: str) -> None:
    """Refuse a command line that the shell, or the program it names, would not take."""
    subprocess.run(["bash", "-n"], input=command, text=True, check=True)
    words = shlex.split(command, comments=True)
    if words[0] == "xfed":
        parse(words[1:])
    elif words[:2] == ["pip", "install"]:
        check_installation(command)
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), f"{command!r}: the Makefile has no such target"
    elif (BINARIES / words[0]).exists() and words[0] != "python":
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        inner = tuple(word for word in words[1:3] if re.fullmatch(r"[a-z]+", word))
        unknown = {option for option in options if option not in help_of(words[0], *inner)}
        assert not unknown, f"{command!r}: {words[0]} has no {unknown}"


def check_installation(command: str) -> None:
    """Refuse a way to install that is not the one of all pages, or names extras that there are not."""
    given = INSTALL.match(command)
    assert given, f"{command!r} is not how the pages install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra for group in given.groups() if group for extra in group.split(",")}
    assert named <= set(extras), f"{command!r}: there are no extras {named - set(extras)}"


def parse(arguments: list[str]) -> None:
    """Give arguments to the command line's parser; settings of a run must make an experiment."""
    command: click.Command = FrontDoor(arguments)
    context = command.make_context("xfed", list(arguments))
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        command, context = inner, inner.make_context(name, rest, parent=context)
    if "settings_file" in context.params and command.name == "run":
        from xfed.cli.options import gather
        from xfed.experiment import Experiment, read_settings

        with context:
            file = context.params["settings_file"]
            known = read_settings(file) if file and file.is_file() else {}
            Experiment.from_mapping(gather(known, context.params["assignments"]))


@cache
def help_of(program: str, *inner: str) -> str:
    """Ask a program what it takes."""
    path = shutil.which(program, path=str(BINARIES))
    assert path is not None
    done = subprocess.run([path, *inner, "--help"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
