"""Several methods on one partition and one stream of cohorts; finished runs are reused, never recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.experiment.code import code_digest
from xfed.protocol.algorithm import methods
from xfed.running import resume, run
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run, open_run

Reuse = Literal["same", "any"]


def plan_comparison(values: Mapping[str, Any], names: Sequence[str], seeds: Sequence[int]) -> list[Experiment]:
    """Describe one run per method and seed; a method's own settings (`xfed.mu`) reach that method alone."""
    if not names:
        raise InputError("compare needs at least one method")
    if len(set(names)) < len(names) or len(set(seeds)) < len(seeds):
        raise InputError("compare takes each method and each seed once")
    others = {component.name for component in methods} - set(names)
    for key in values:
        section = key.partition(".")[0]
        if section in others:
            raise InputError(f"setting {key!r} is for method {section!r}, which is not among those compared")
    experiments = []
    for name in names:
        foreign = set(names) - {name}
        own = {key: value for key, value in values.items() if key.partition(".")[0] not in foreign}
        experiments += [Experiment.from_mapping({**own, "method": name, "seed": seed}) for seed in seeds]
    return experiments


def compare(experiments: Sequence[Experiment], out: Path, progress: bool = True, reuse: Reuse = "same") -> list[Run]:
    """Run, continue or reuse each experiment in a folder of its own under `out`.

    A run is reused when its resolved settings, the data's content and its plug-ins are equal, and the code that decides
    numbers is the same; with `any`, a finished run of other code counts too.
    """
    runs = []
    checksums: dict[str, str] = {}
    for experiment in experiments:
        source = f"{experiment.dataset}{experiment.settings.get('dataset')}"
        if source not in checksums:
            checksums[source] = experiment.load_data().checksum()
        fingerprint = experiment.fingerprint(checksums[source])
        stem = f"{experiment.method}-{experiment.dataset}-seed{experiment.seed}-{fingerprint[:10]}"
        found = find_run(out, stem, fingerprint, reuse)
        if found is None:
            root = out / f"{stem}-{code_digest()[:6]}"
            runs.append(run(experiment.changed(out=root), progress))
        elif found.finished:
            runs.append(found)
        else:
            place = experiment.place
            runs.append(resume(found.path, progress, engine=place.engine, workers=place.workers))
    return runs


def find_run(out: Path, stem: str, fingerprint: str, reuse: Reuse) -> Run | None:
    """Find a run of these settings: of the present code, else with `any` a finished one of other code."""
    others = []
    for root in sorted(out.glob(f"{stem}-*")):
        directory = RunDirectory(root)
        if not directory.settings_file.is_file() or directory.environment()["fingerprint"] != fingerprint:
            continue
        if directory.environment()["code"] == code_digest():
            return open_run(root)
        if directory.finished:
            others.append(root)
    return open_run(others[-1]) if reuse == "any" and others else None
