"""In which settings, surroundings and results two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xfed.experiment.experiment import SECTIONS
from xfed.runs.reader import Run
from xfed.runs.settings import flat


@dataclass(frozen=True)
class Difference:
    """One thing that is not alike; nothing where a run lacks it."""

    name: str
    first: Any
    second: Any


def differences(a: Run, b: Run) -> dict[str, list[Difference]]:
    """Compare two runs, by kind."""
    kinds = {
        "settings": [_settings(run) for run in (a, b)],
        "surroundings": [_surroundings(run) for run in (a, b)],
        "results": [_results(run) for run in (a, b)],
    }
    return {kind: _unlike(*pair) for kind, pair in kinds.items()}


def _unlike(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    names = dict.fromkeys((*first, *second))
    pairs = ((name, first.get(name), second.get(name)) for name in names)
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2]]


def _settings(run: Run) -> dict[str, Any]:
    """Give all settings by the names that the command line has for them, but for where the run is."""
    e = run.experiment
    chosen = {"method": e.method, "dataset": e.dataset, "model": e.model, "engine": e.place.engine}
    plain = e.model_dump(mode="json", exclude={"place": {"out", "data_dir", "plugin"}})
    components = {chosen[role]: values for role, values in plain.pop("settings").items()}
    sections = [plain.pop(name) for name in SECTIONS]
    return dict(
        flat({**plain, **{name: value for section in sections for name, value in section.items()}, **components})
    )


def _surroundings(run: Run) -> dict[str, Any]:
    noted = run.environment()
    kept = {name: noted[name] for name in ("code", "commit", "versions", "machine")}
    plugins = [path.name for path in run.directory.plugin_files()]
    return dict(flat({**kept, "data": run.card.sha256, "plugins": plugins}))


def _results(run: Run) -> dict[str, Any]:
    """Give the figures of the table, as people read them: two digits, so equal ones are equal."""
    records, evaluations = run.records(), run.evaluations()
    found: dict[str, Any] = {"rounds done": len(records), "finished": run.finished}
    found["continued with"] = ", ".join(map(str, run.changes())) or None
    if not (records and evaluations):
        return found
    summary = run.summary()
    found["averaged accuracy, last (%)"] = f"{100 * summary.last.mean:.2f} ± {100 * summary.last.std:.2f}"
    if summary.best is not None and summary.last5 is not None:
        found["last5 (%)"], found["best (%)"] = f"{100 * summary.last5:.2f}", f"{100 * summary.best.mean:.2f}"
    for j, (mean, std) in enumerate(zip(summary.last.exits, summary.last.exit_stds, strict=True)):
        found[f"exit {j + 1} (%)"] = f"{100 * mean:.2f} ± {100 * std:.2f}"
    found["training loss, last round"] = f"{records[-1].loss:.6f}"
    found["bytes down"] = sum(record.bytes_down for record in records)
    found["bytes up"] = sum(record.bytes_up for record in records)
    found["training MACs"] = sum(record.macs for record in records)
    found["MACs by exit"] = run.exit_macs
    return found
