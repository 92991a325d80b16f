"""Many runs as one plan: which are there already, which are left, in one folder; finished ones are never recomputed.

Comparisons, sweeps and the paper's tables all come here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from xfed.data.dataset import Dataset
from xfed.errors import InputError
from xfed.experiment import Experiment
from xfed.experiment.code import code_digest
from xfed.progress import Shown
from xfed.protocol.algorithm import methods
from xfed.resuming import resume
from xfed.running import run
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run, open_run

Reuse = Literal["same", "any"]


@dataclass(frozen=True)
class Planned:
    """An experiment with its place under the plan's folder, and the run that is there, finished or not."""

    experiment: Experiment
    root: Path
    data: Dataset
    found: Run | None

    @property
    def done(self) -> bool:
        """Tell whether nothing is left to do."""
        return self.found is not None and self.found.finished

    @property
    def rounds_left(self) -> int:
        """Count the rounds that are still to be done."""
        rounds = self.experiment.training.rounds
        if self.found is None:
            return rounds
        return 0 if self.found.finished else rounds - len(self.found.records())


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


def plan_runs(experiments: Sequence[Experiment], out: Path, reuse: Reuse = "same") -> list[Planned]:
    """Find out which experiments have a run under `out`; experiments that compute the same share one.

    A run is reused when its resolved settings, the data's content and its plug-ins are equal, and the code that decides
    numbers is the same; with `any`, a finished run of other code counts too.
    """
    data: dict[str, Dataset] = {}
    planned = []
    for experiment in experiments:
        source = f"{experiment.dataset}{experiment.settings.get('dataset')}{experiment.training.normalise}"
        if source not in data:
            data[source] = experiment.load_data()
        fingerprint = experiment.fingerprint(data[source].checksum())
        stem = f"{experiment.method}-{experiment.dataset}-seed{experiment.seed}-{fingerprint[:10]}"
        found = find_run(out, stem, fingerprint, reuse)
        root = _free(out / f"{stem}-{code_digest()[:6]}") if found is None else found.path
        planned.append(Planned(experiment, root, data[source], found))
    return planned


def carry_out(
    planned: Sequence[Planned], progress: Shown = True, before: Callable[[Sequence[Planned]], None] | None = None
) -> list[Run]:
    """Run, continue or reuse each experiment, in order; `before` hears what is left whenever one begins."""
    runs: dict[Path, Run] = {each.root: each.found for each in planned if each.found is not None and each.done}
    left = list({each.root: each for each in planned if not each.done}.values())
    for number, each in enumerate(left):
        if before is not None:
            before(left[number:])
        if each.found is None:
            if not RunDirectory(each.root).settings_file.exists():
                shutil.rmtree(each.root, ignore_errors=True)  # the beginning of a start that was killed
            runs[each.root] = run(each.experiment.changed(out=each.root), progress)
        else:
            place = each.experiment.place
            runs[each.root] = resume(each.root, progress, engine=place.engine, workers=place.workers)
    return [runs[each.root] for each in planned]


def compare(experiments: Sequence[Experiment], out: Path, progress: Shown = True, reuse: Reuse = "same") -> list[Run]:
    """Run, continue or reuse each experiment in a folder of its own under `out`."""
    return carry_out(plan_runs(experiments, out, reuse), progress)


def _free(root: Path) -> Path:
    """Name a folder for a new run: one that was continued with changes may have the first name."""
    number, path = 1, root
    while RunDirectory(path).changes():
        number += 1
        path = root.with_name(f"{root.name}-{number}")
    return path


def find_run(out: Path, stem: str, fingerprint: str, reuse: Reuse) -> Run | None:
    """Find a run of these settings: of the present code, else with `any` a finished one of other code."""
    others = []
    for root in sorted(out.glob(f"{stem}-*")):
        directory = RunDirectory(root)
        if not directory.settings_file.is_file() or directory.environment()["fingerprint"] != fingerprint:
            continue
        if directory.changes():  # continued with more rounds, say: no longer what these settings compute
            continue
        if directory.environment()["code"] == code_digest():
            return open_run(root)
        if directory.finished:
            others.append(root)
    return open_run(others[-1]) if reuse == "any" and others else None
