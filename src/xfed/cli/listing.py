"""`xfed methods`, `datasets`, `models` and `engines`: what there is, and the settings each takes.

The built-in components are described in `catalogue.json`, made from their code by `python -m xfed.cli.listing`, so that
a listing need not import torch. Where the code has changed since, or a plug-in is given, they are imported and asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import click

CATALOGUE = Path(__file__).with_name("catalogue.json")
PACKAGES = {"methods": "algorithms", "datasets": "data/sources", "models": "models", "engines": "engines"}
Entry = dict[str, str]
"""Name and text of a component."""


def listing_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the commands."""
    plugin = click.Option(["--plugin"], multiple=True, metavar="path", help="Python file that registers more")
    wide = click.Option(["--wide"], is_flag=True, help="the settings of each, too")
    commands: list[click.Command] = []
    for kind in PACKAGES:
        text = f"List the {kind.replace('datasets', 'data sets')} there are; with --wide, their settings."

        def show(plugin: Sequence[str], wide: bool, kind: str = kind) -> None:
            if click.get_current_context().invoked_subcommand is None:
                _show(kind, plugin, wide)
            elif plugin:
                from xfed.components import load_plugins

                load_plugins(plugin)

        if kind == "models" and "describe" in arguments:
            from xfed.cli.models import DESCRIBE

            commands.append(click.Group(kind, callback=show, params=[plugin, wide], help=text, commands=[DESCRIBE]))
        elif kind == "models":
            text += " 'xfed models describe NAME' shows one in figures."
            commands.append(
                click.Group(kind, callback=show, params=[plugin, wide], help=text, invoke_without_command=True)
            )
        else:
            commands.append(click.Command(kind, callback=show, params=[plugin, wide], help=text))
    return commands


def _show(kind: str, plugins: Sequence[str], wide: bool) -> None:
    from rich.text import Text

    from xfed.report.terminal import show_listing

    body = []
    for each in entries(kind, plugins):
        text = each["text"] if wide else each["text"].partition("\n")[0]
        body.append((Text(each["name"], style="bold"), Text.from_markup(text)))
    show_listing(["name", "what it is, and the settings it takes" if wide else "what it is"], body, apart=wide)


def entries(kind: str, plugins: Sequence[str] = ()) -> list[Entry]:
    """Describe all components of a kind, from the catalogue where it holds."""
    if not plugins and not entry_points(group=f"xfed.{kind}"):
        noted = json.loads(CATALOGUE.read_text(encoding="utf-8"))
        if noted["code"] == _digest():
            found: list[Entry] = noted[kind]
            return found
    from xfed.components import load_plugins

    load_plugins(plugins)
    return _described()[kind]


def _described() -> dict[str, list[Entry]]:
    """Import all components and describe them."""
    from xfed.cli.options import setting_lines
    from xfed.experiment.experiment import ROLES

    found: dict[str, list[Entry]] = {}
    for role, registry in ROLES.items():
        found[f"{role}s"] = []
        for component in sorted(registry, key=lambda each: each.name):
            lines = [component.summary()]
            for name, kind, default, text in setting_lines(component.Settings):
                given = "" if default is None else f" = {default}"
                lines.append(f"[cyan]{component.name}.{name}[/cyan] \\[{kind}]{given}: {text}")
            found[f"{role}s"].append({"name": component.name, "text": "\n".join(lines)})
    return found


def _digest() -> str:
    """Identify the code that the catalogue was made from."""
    root = Path(__file__).parents[1]
    content = hashlib.sha256()
    for package in PACKAGES.values():
        for path in sorted((root / package).glob("*.py")):
            content.update(path.relative_to(root).as_posix().encode())
            content.update(path.read_bytes())
    return content.hexdigest()


if __name__ == "__main__":
    made = {"code": _digest(), **_described()}
    CATALOGUE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
