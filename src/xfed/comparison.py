"""Several methods on one partition and one stream of cohorts; finished runs are reused, never recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xfed.components import Component
from xfed.data.dataset import datasets
from xfed.errors import InputError, unknown
from xfed.experiment import Experiment
from xfed.federation.run_directory import RunDirectory
from xfed.models.network import models
from xfed.protocol.algorithm import methods
from xfed.running import Run, open_run, resume, run


def plan_comparison(values: Mapping[str, Any], names: Sequence[str], seeds: Sequence[int]) -> list[Experiment]:
    """Describe one run per method and seed; a method's own settings (`xfed.mu`) reach that method alone."""
    if not names:
        raise InputError("compare needs at least one method")
    if len(set(names)) < len(names) or len(set(seeds)) < len(seeds):
        raise InputError("compare takes each method and each seed once")
    known: dict[str, type[Component]] = {c.name: c for kind in (methods, datasets, models) for c in kind}
    others = {c.name for c in methods} - set(names)
    for key in values:
        section = key.partition(".")[0]
        if section in others:
            raise InputError(f"setting {key!r} is for method {section!r}, which is not among those compared")
        if section not in known and section not in Experiment.model_fields:
            raise unknown("setting", key, [*Experiment.model_fields, *known])
    experiments = []
    for name in names:
        foreign = set(names) - {name}
        own = {key: value for key, value in values.items() if key.partition(".")[0] not in foreign}
        experiments += [Experiment.from_mapping({**own, "method": name, "seed": seed}) for seed in seeds]
    return experiments


def compare(experiments: Sequence[Experiment], out: Path, progress: bool = True) -> list[Run]:
    """Run, continue or reuse each experiment in a folder of its own under `out`.

    A run is reused when its resolved settings, the data's checksum and the code's version are all equal: the
    fingerprint of these three is part of the folder's name and written inside it.
    """
    runs = []
    checksums: dict[str, str] = {}
    for experiment in experiments:
        source = f"{experiment.dataset}{experiment.settings.get(experiment.dataset)}"
        if source not in checksums:
            checksums[source] = experiment.dataset_source().load().checksum()
        fingerprint = experiment.fingerprint(checksums[source])
        root = out / f"{experiment.method}-{experiment.dataset}-seed{experiment.seed}-{fingerprint[:10]}"
        elsewhere: dict[str, Any] = {"engine": experiment.engine, "workers": experiment.workers}
        if (root / "settings.yaml").is_file() and RunDirectory(root).environment()["fingerprint"] == fingerprint:
            opened = open_run(root)
            runs.append(opened if opened.finished else resume(root, progress, **elsewhere))
        else:
            runs.append(run(experiment.model_copy(update={"out": root}), progress))
    return runs
