"""What mkdocs does beside pages that people wrote: reference pages from the code, results, formulas as MathML.

`make docs` calls the functions whose names begin with `on_`. Reference pages are written from settings models, click
commands, signatures and docstrings, so a new method, setting or command appears in them by itself.
"""

from __future__ import annotations

import dataclasses
import enum
import html
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).parents[2]
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
CELL = re.compile(r"<td.*?</td>", re.DOTALL)
ROLE_TITLES = {"method": "Methods", "dataset": "Data sets", "model": "Networks", "engine": "Engines"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages that mkdocs.yml does not name at the end of their folder's section, and each folder of results."""
    docs = ROOT / "docs"
    named = {page for section in config.nav or [] for pages in section.values() for page in pages}
    for section in config.nav or []:
        for title, pages in section.items():
            folder = docs if title == config.site_name else docs / title.lower()
            found = sorted(path.relative_to(docs).as_posix() for path in folder.glob("*.md"))
            pages.extend(page for page in found if page not in named)
            if title == "Results":  # pages of one data set have one title; their folders tell them apart
                kept = sorted(folder.glob("*/README.md"))
                pages.extend({page.parent.name: page.relative_to(docs).as_posix()} for page in kept)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Give the wide tables and figures of results the room of the table of contents."""
    if page.file.src_uri.startswith("results/") and page.file.src_uri.endswith("/README.md"):
        page.meta["hide"] = ["toc"]
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers draw without a script; keep a mean and its spread on one line."""
    return CELL.sub(lambda cell: cell[0].replace(" ± ", "&nbsp;±&nbsp;"), FORMULA.sub(_mathml, content))


def _mathml(found: re.Match[str]) -> str:
    tag, text = found[1], html.unescape(found[2]).strip()
    formula = text.removeprefix("\\(").removesuffix("\\)").removeprefix("\\[").removesuffix("\\]").strip()
    display = "block" if tag == "div" else "inline"
    return f'<{tag} class="arithmatex">{convert(formula, display=display)}</{tag}>'


# Settings


def settings_page() -> str:
    """Describe every setting of a run, and the settings that each method, data set, network and engine adds."""
    from xfed.cli.options import TITLES
    from xfed.experiment import Experiment
    from xfed.experiment.experiment import ROLES, SECTIONS

    lines = [
        "# Settings",
        "",
        "Written from the code. Each setting of a run is an option of `xfed run` (`--lr-decay 0.98`), a line of a "
        "settings file (`lr_decay: 0.98`), an argument of `--set` (`--set lr_decay=0.98`) and an argument of "
        "`xfed.Experiment` (`lr_decay=0.98`). Settings of a component carry its name: `--xfed.mu 0.7`, "
        '`--set xfed.mu=0.7`, `Experiment(xfed={"mu": 0.7})`. A data set may bring other defaults than those listed; '
        "`xfed run --dataset NAME --help` shows them.",
        "",
    ]
    own = {name for name in Experiment.model_fields if name not in SECTIONS and name != "settings"}
    lines += ["## What is run", "", *_table(Experiment, only=own)]
    for section, model in SECTIONS.items():
        lines += [f"## {TITLES[section]}", "", inspect.getdoc(model) or "", "", *_table(model)]
    for role, registry in ROLES.items():
        lines += [f"## {ROLE_TITLES[role]}", ""]
        for component in sorted(registry, key=lambda each: each.name):
            lines += [f"### {component.name}", "", *_prose(component), *_table(component.Settings, component.name)]
    return "\n".join(lines)


def _table(model: type[BaseModel], prefix: str = "", only: set[str] | None = None) -> list[str]:
    from xfed.cli.options import setting_lines

    rows = [line for line in setting_lines(model) if only is None or line[0] in only]
    if not rows:
        return ["No settings of its own.", ""]
    lines = ["| setting | takes | default | what it does |", "|---|---|---|---|"]
    for name, kind, default, text in rows:
        shown = "" if default in (None, PydanticUndefined, ()) else f"`{default}`"
        name = f"{prefix}.{name}" if prefix else name
        lines.append(f"| `{name}` | {_cell(kind.replace('|', ' | '))} | {shown} | {_escaped(_cell(text))} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _prose(thing: object) -> list[str]:
    """Give a docstring as paragraphs."""
    return [_escaped(inspect.getdoc(thing) or ""), ""]


def _escaped(text: str) -> str:
    """Keep formulas and shells' words, which are plain text, from being taken for Markdown; code stays code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_$])", r"\\\1", piece).replace("<", "&lt;") for piece in pieces
    )


# Commands


def commands_page() -> str:
    """Describe every command with its arguments and options."""
    from xfed.cli.group import COMMANDS, FrontDoor

    lines = [
        "# Commands",
        "",
        "Written from the code; `xfed COMMAND --help` says the same. Options that are [settings](settings.md) of a run "
        "are left out here.",
        "",
    ]
    for name in COMMANDS:
        door = FrontDoor([name, "describe"])
        command = door.get_command(click.Context(door, info_name="xfed"), name)
        assert command is not None
        lines += _command(command, f"xfed {name}", "##")
    return "\n".join(lines)


def _command(command: click.Command, path: str, heading: str) -> Iterator[str]:
    from xfed.cli.options import SettingOption

    context = click.Context(command, info_name=path)
    yield from [f"{heading} {path}", "", _escaped(command.help or ""), ""]
    usage = " ".join(part for part in command.collect_usage_pieces(context) if part != "[OPTIONS]")
    settings = any(isinstance(parameter, SettingOption) for parameter in command.params)
    options = [p for p in command.params if isinstance(p, click.Option) and not isinstance(p, SettingOption)]
    pieces = [path, usage, "[OPTIONS]" if options else "", "[SETTINGS]" if settings else ""]
    yield from ["```text", " ".join(piece for piece in pieces if piece), "```", ""]
    records = [record for option in options if (record := option.get_help_record(context))]
    if records:
        yield from ["| option | what it does |", "|---|---|"]
        yield from (f"| `{flags}` | {_escaped(_cell(text))} |" for flags, text in records)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _command(inner, f"{path} {name}", heading + "#")


# Python


def python_page() -> str:
    """Describe every public name of both distributions: signature, docstring, public members."""
    lines = ["# Python", "", "Written from signatures and docstrings.", ""]
    for module in ("xfed", "xfed_runtime"):
        package = import_module(module)
        lines += [f"## {module}", "", *_prose(package)]
        for name in sorted(package.__all__, key=str.lower):
            if not name.startswith("__"):
                lines += _thing(name, getattr(package, name), module)
    return "\n".join(lines)


def _thing(name: str, thing: Any, module: str) -> Iterator[str]:
    yield from [f"### {module}.{name}", ""]
    if not isinstance(thing, type):
        yield from _code(_signature(name, thing) if callable(thing) else f"{name} = {thing!r}")
        yield from _prose(thing) if callable(thing) else ()
        return
    if issubclass(thing, enum.Enum):
        yield from _code(f"{name}: {', '.join(thing.__members__)}")
    elif not issubclass(thing, BaseModel | Exception) and "__init__" in vars(thing):
        yield from _code(_signature(name, thing))
    yield from _prose(thing)
    if dataclasses.is_dataclass(thing):
        fields = [f"`{field.name}: {field.type}`" for field in dataclasses.fields(thing) if field.name[0] != "_"]
        yield from ["Fields: " + ", ".join(fields) + ".", ""]
    for member, value in _members(thing):
        summary = " ".join((inspect.getdoc(value) or "").split())
        shown = re.sub(r"\((self|cls)(, )?", "(", _signature(member, value))
        if isinstance(value, property):
            shown = member
        yield f"- `{shown}`  \n  {_escaped(summary)}"
    yield ""


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Give the public methods and properties that are the project's own."""
    for name in dict.fromkeys(name for base in thing.__mro__ if "xfed" in base.__module__ for name in vars(base)):
        value = inspect.getattr_static(thing, name)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield name, value


def _signature(name: str, thing: Callable[..., Any] | property) -> str:
    if isinstance(thing, property):
        return name
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{name}(...)"
    return f"{name}{_plain(str(signature))}"


def _plain(text: str) -> str:
    """Take the quotes off annotations, and show members of enumerations by their names."""
    return re.sub(r"<(\w+\.\w+): \d+>", r"\1", re.sub(r"(: |-> |\| )'([^']*)'", r"\1\2", text))


def _code(text: str) -> list[str]:
    """Show a signature; a long one with a line for every parameter."""
    if len(text) > 100:
        opening, _, rest = text.partition("(")
        inside, _, result = rest.rpartition(")")
        parameters = re.split(r", (?=\*?\w+: |\*, )", inside)
        text = opening + "(\n" + "".join(f"    {each},\n" for each in parameters) + ")" + result
    return ["```python", text, "```", ""]


PAGES = {"settings": settings_page, "commands": commands_page, "python": python_page}
