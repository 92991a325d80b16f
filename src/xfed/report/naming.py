"""What runs are called where several stand side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from xfed.runs.reader import Run
from xfed.runs.settings import flat

ELSEWHERE = ("seed", "place.", "dealing.", "dataset", "settings.engine.", "settings.dataset.")
"""Settings that are told otherwise, or do not tell runs apart."""
MOST_SETTINGS = 2


def names_of(runs: Sequence[Run]) -> list[str]:
    """Name runs by method, and add what tells those of one method apart: data, skew, settings, seed, the folder."""
    names = [run.experiment.method for run in runs]
    for more in (
        lambda run: run.experiment.dataset,
        lambda run: run.experiment.dealing.in_words(),
        None,
        lambda run: f"seed {run.experiment.seed}",
        lambda run: run.path.name,
    ):
        often = Counter(names)
        again = _unlike(runs, names) if more is None else [more(run) for run in runs]
        groups = {name: {a for n, a in zip(names, again, strict=True) if n == name} for name in often}
        names = [f"{n}, {a}" if a and len(groups[n]) > 1 else n for n, a in zip(names, again, strict=True)]
    return names


def _unlike(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """Say of each run in which settings it differs from others of its name; nothing where these are too many."""
    every = [flat(run.experiment.resolved().model_dump(mode="json")) for run in runs]
    settings = [{name: value for name, value in each if not name.startswith(ELSEWHERE)} for each in every]
    said = []
    for own, name in zip(settings, names, strict=True):
        alike = [other for other, same in zip(settings, names, strict=True) if same == name]
        differing = [key for key in own if any(other.get(key) != own[key] for other in alike)]
        words = [f"{key.rpartition('.')[2]} {'default' if own[key] is None else own[key]}" for key in differing]
        said.append(", ".join(words) if len(words) <= MOST_SETTINGS else "")
    return said
