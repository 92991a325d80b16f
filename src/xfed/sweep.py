"""A user's own grid: methods × values of settings × seeds, as one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from xfed.comparison import plan_comparison
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.protocol.algorithm import methods
from xfed.yaml_text import parse


@dataclass(frozen=True, eq=False)
class Point:
    """One method at one place of the grid: its experiments, one for each seed."""

    method: str
    varied: Mapping[str, Any]
    """The settings that vary and concern this method."""
    experiments: Sequence[Experiment]


def read_grid(lines: Sequence[str]) -> dict[str, list[Any]]:
    """Read `key=value,value,...` lines."""
    grid: dict[str, list[Any]] = {}
    for line in lines:
        key, equals, text = line.partition("=")
        values = [parse(part, f"--vary {line!r}") for part in text.split(",")] if equals else []
        if not values or None in values:
            raise InputError(f"--vary {line!r} is not of the form key=value,value")
        if key in grid or len(set(map(str, values))) < len(values):
            raise InputError(f"--vary {line!r}: allowed: each setting once, and each of its values once")
        grid[key] = values
    return grid


def plan_sweep(
    values: Mapping[str, Any], names: Sequence[str], grid: Mapping[str, Sequence[Any]], seeds: Sequence[int]
) -> list[Point]:
    """Describe the grid, method by method; a method's own settings (`xfed.mu`) vary for that method alone."""
    everyone = {component.name for component in methods}
    for key in (*grid, *values):
        if key in grid and key in ("method", "seed"):
            raise InputError(f"--vary {key} is not for settings; give --{key}s")
        owner = key.partition(".")[0]
        if owner in everyone and owner not in names:
            raise InputError(f"setting {key!r} is for method {owner!r}, which is not among those swept")
    points = []
    for name in names:
        foreign = everyone - {name}
        own = {key: value for key, value in values.items() if key.partition(".")[0] not in foreign}
        mine = {key: choices for key, choices in grid.items() if key.partition(".")[0] not in foreign}
        for combination in product(*mine.values()):
            varied = dict(zip(mine, combination, strict=True))
            points.append(Point(name, varied, plan_comparison({**own, **varied}, [name], seeds)))
    return points
