"""Command-line options made from settings models, so that a setting is described in one place only."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic import BaseModel

from xfed.data.dataset import datasets
from xfed.errors import InputError
from xfed.experiment import Experiment, read_settings
from xfed.experiment.experiment import ROLES, SECTIONS
from xfed.experiment.sections import Place
from xfed.yaml_text import parse


class SettingOption(click.Option):
    """An option that sets one setting; `panel` is the heading it stands under in --help."""

    def __init__(self, flag: str, key: str, panel: str, flag_value: str | None = None, **rest: Any) -> None:
        if flag_value is not None:  # the option may stand alone
            rest |= {"is_flag": False, "flag_value": flag_value}
        super().__init__([flag, "setting_" + re.sub(r"\W", "__", key)], default=None, type=str, **rest)
        self.key, self.panel = key, panel

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the value: a component's name, one of some words, or a file."""
        kind = str(self.metavar)
        words = [component.name for component in ROLES[self.key]] if self.key in ROLES else kind.split("|")
        if kind == "path":
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in words if word.startswith(incomplete) and word not in KINDS.values()]


RUN = click.Argument(["path"], type=Path, metavar="RUN")
RUNS = click.Argument(["paths"], type=Path, nargs=-1, required=True, metavar="RUN...")
FILE = click.Argument(["settings_file"], required=False, metavar="[SETTINGS.yaml]", type=Path)
SET = click.Option(
    ["--set", "assignments"], multiple=True, metavar="key=value", help="set any setting, e.g. xfed.mu=0.7"
)
SEEDS = click.Option(["--seeds"], metavar="1,2,3", help="average over these seeds instead of --seed")
REUSE = click.Option(
    ["--reuse"],
    type=click.Choice(["same", "any"]),
    default="same",
    show_default=True,
    help="reuse finished runs of the same code alone, or of any",
)
DATA_DIR = click.Option(["--data-dir"], type=Path, metavar="path", help=Place.model_fields["data_dir"].description)
ENGINE = click.Option(["--engine"], metavar="name", help=Place.model_fields["engine"].description)
WORKERS = click.Option(["--workers"], type=click.IntRange(min=1), help=Place.model_fields["workers"].description)
DEVICE = click.Option(["--device"], type=Path, metavar="device.json", help="latencies by exit: costs in ms")


def out_option(help: str, default: str | None = None, metavar: str = "folder", required: bool = False) -> click.Option:
    """Make the option that says where results go."""
    given: dict[str, Any] = {} if default is None else {"default": Path(default), "show_default": True}
    return click.Option(["-o", "--out"], type=Path, required=required, metavar=metavar, help=help, **given)


def methods_option(default: str) -> click.Option:
    """Make the option that names several methods."""
    return click.Option(
        ["--methods", "names"], default=default, show_default=True, metavar="a,b,c|all", help="which methods"
    )


def clients_option(default: str, help: str) -> click.Option:
    """Make the option that names some clients."""
    return click.Option(["--clients"], default=default, show_default=True, metavar="0-9,12|all", help=help)


def chosen_components(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Glance at which components are asked for, by role: their settings are shown by --help."""
    chosen = {}
    for role in ROLES:
        model = Place if role == "engine" else Experiment
        chosen[role] = (glance(arguments, f"--{role}") or [model.model_fields[role].default])[-1:]
    listed = [name for text in glance(arguments, "--methods") for name in text.split(",")]
    return chosen | ({"method": listed} if listed else {})


def parse_methods(text: str) -> list[str]:
    """Read `a,b,c` or `all`."""
    return [component.name for component in ROLES["method"]] if text == "all" else text.split(",")


def read_file(path: Path | None) -> dict[str, Any]:
    """Read a settings file, where one is given."""
    return {} if path is None else read_settings(path)


class PanelCommand(click.Command):
    """A command whose --help groups options under headings."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per panel, in the order of first appearance."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                panels.setdefault(getattr(parameter, "panel", "Options"), []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


TITLES = {
    "dealing": "Who holds which samples",
    "training": "Training",
    "evaluation": "Evaluation",
    "place": "Where it runs",
}


KINDS: dict[Any, str] = {int: "int", float: "float", Path: "path", str: "name"}


def describe_type(annotation: Any) -> str:
    """Name what an option takes, for people."""
    origin = get_origin(annotation)
    if origin is Literal:
        return "|".join(str(choice) for choice in get_args(annotation))
    if origin in (Union, types.UnionType):
        return "|".join(describe_type(part) for part in get_args(annotation) if part is not type(None))
    if origin is tuple:
        return describe_type(get_args(annotation)[0])
    if hasattr(annotation, "__metadata__"):
        return describe_type(get_args(annotation)[0])
    return KINDS.get(annotation, "true|false" if annotation is bool else "value")


def setting_lines(model: type[BaseModel]) -> Iterator[tuple[str, str, Any, str]]:
    """List a settings model: name, type, default, description."""
    for name, field in model.model_fields.items():
        yield name, describe_type(field.annotation), field.default, field.description or ""


def _options(
    model: type[BaseModel], panel: str, prefix: str = "", hidden: bool = False, suited: Mapping[str, Any] | None = None
) -> Iterator[SettingOption]:
    for name, kind, general, text in setting_lines(model):
        default = (suited or {}).get(name, general)
        shown = "" if default in (None, ()) else f"  [{default}]"
        flag = f"--{prefix}{name}" if prefix else f"--{name.replace('_', '-')}"
        yield SettingOption(
            flag,
            prefix + name,
            panel,
            metavar=kind,
            help=text + shown,
            hidden=hidden,
            multiple=name == "plugin",
            flag_value="sum" if name == "local_kd" else None,
        )


def experiment_options(without: Sequence[str], chosen: Sequence[str]) -> list[click.Parameter]:
    """Make options for all settings of an experiment and of every component.

    Those of components that are not chosen are understood but left out of --help.
    """
    suited = {k: v for source in datasets if source.name in chosen for k, v in source.recommended.items()}
    left_out = {*without, *SECTIONS, "settings"}
    options = list(_options(Experiment, "Experiment", suited=suited))
    for section, model in SECTIONS.items():
        options += _options(model, TITLES[section], suited=suited)
    parameters: list[click.Parameter] = [option for option in options if option.key not in left_out]
    for role, components in ROLES.items():
        for component in components:
            title = f"Settings of {role.replace('dataset', 'data set')} {component.name}"
            hidden = component.name not in chosen
            own = suited.get(component.name, {})
            parameters += _options(component.Settings, title, f"{component.name}.", hidden, own)
    return parameters


def glance(arguments: Sequence[str], flag: str) -> list[str]:
    """Find the values of one option before the real parsing, which depends on them."""
    values = [argument.split("=", 1)[1] for argument in arguments if argument.startswith(f"{flag}=")]
    pairs = pairwise(arguments)
    return values + [value for name, value in pairs if name == flag]


def gather(file_values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Put settings together: a file, overridden by --set, overridden by options."""
    values: dict[str, Any] = {}
    for key, value in file_values.items():
        if key == "settings" and isinstance(value, Mapping):
            values.update(_dotted(value))
        elif key in SECTIONS and isinstance(value, Mapping):
            values.update(value)
        else:
            values.update(_dotted({key: value}))
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment!r} is not of the form key=value")
        values[key.strip()] = parse(text, f"--set {assignment!r}")
    context = click.get_current_context()
    for parameter in context.command.params:
        if isinstance(parameter, SettingOption):
            given = context.params.get(parameter.name or "")
            if given not in (None, ()):
                values[parameter.key] = given
    return values


def _dotted(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Write the settings within sections as `section.name`, so that single ones can be overridden."""
    flat: dict[str, Any] = {}
    for section, value in sections.items():
        if isinstance(value, Mapping):
            flat.update((f"{section}.{name}", inner) for name, inner in value.items())
        else:
            flat[section] = value
    return flat


def parse_seeds(text: str) -> list[int]:
    """Read `1,2,3`."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds is {text!r}: allowed are whole numbers with commas, such as 1,2,3") from None


def parse_clients(text: str, population: int) -> list[int]:
    """Read `0-9,12` or `all`."""
    if text == "all":
        return list(range(population))
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers or numbers[0] < 0:
            raise InputError(f"--clients is {text!r}; allowed: numbers and ranges such as 0-9,12, or all")
        if numbers[-1] >= population:
            raise InputError(f"--clients is {text!r}, but the run has clients 0 to {population - 1}")
        chosen.update(numbers)
    return sorted(chosen)
