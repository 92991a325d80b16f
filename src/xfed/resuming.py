"""Coming back to a run: after any interruption, beyond its end, or otherwise than it was started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xfed.data.dealing.partition_file import read_partition
from xfed.errors import InputError, unknown
from xfed.experiment.code import code_digest
from xfed.experiment.sections import Place
from xfed.federation.host import build_trainer
from xfed.federation.watching import Callback, Watcher
from xfed.files import sweep
from xfed.kernels.choice import Kernels
from xfed.progress import Shown
from xfed.running import carry_out
from xfed.runs.amending import AMENDABLE, amend, stand_ins
from xfed.runs.directory import RunDirectory
from xfed.runs.reader import Run, open_run
from xfed.runs.rewinding import rewind
from xfed.tracking import require

ELSEWHERE = tuple(name for name in Place.model_fields if name not in ("device", "out", "plugin"))
"""Settings that a run may be continued with otherwise: they say where it runs and cannot change its numbers."""


def resume(
    path: str | Path,
    progress: Shown = True,
    from_round: int | None = None,
    watchers: Sequence[Watcher | Callback] = (),
    plugin: str | Path | Sequence[str | Path] = (),
    **otherwise: Any,
) -> Run:
    """Continue a run after any interruption; a finished run is left as it is, unless there is more to do.

    `otherwise` may change where it runs (engine, workers, data_dir). What changes numbers is recorded in the run: more
    or fewer `rounds`, another `lr` or `on_failure`, and a mended `plugin` in the place of the one of its name.
    """
    for name in otherwise:
        if name not in (*ELSEWHERE, *AMENDABLE):
            raise unknown("setting to resume with", name, [*ELSEWHERE, *AMENDABLE, "plugin"])
    given = [Path(each) for each in ([plugin] if isinstance(plugin, str | Path) else plugin)]
    if not given and from_round is None and not any(name in AMENDABLE for name in otherwise):
        opened = open_run(path)
        if opened.finished:
            return opened
    directory = RunDirectory.open(Path(path))
    with directory.alone():
        sweep(directory.root)
        replaced = stand_ins(directory, given) if given else {}
        own = directory.plugin_files()
        opened = open_run(path, plugins=[replaced.get(file.name, file) for file in own])
        require_same_code(opened)
        present = opened.experiment
        start = starting_round(opened, from_round)
        experiment = present.changed(**otherwise)
        amended = {
            name: getattr(experiment.training, name)
            for name in otherwise
            if name in AMENDABLE and getattr(experiment.training, name) != getattr(present.training, name)
        }
        if opened.finished and not (amended or replaced or from_round is not None):
            return opened
        if experiment.training.rounds <= start and (amended or replaced or from_round is not None):
            raise InputError(
                f"rounds is {experiment.training.rounds}, and run {str(path)!r} would go on after round {start}; "
                "allowed: a higher --rounds, or an earlier --round"
            )
        require(experiment.place.track)
        dataset = Run(directory, experiment).dataset()
        if amended or replaced or opened.finished:
            rewind(directory, start)
            amend(directory, present, amended, replaced, start)
            opened = open_run(path)
        changed = Run(directory, opened.experiment.changed(**{k: v for k, v in otherwise.items() if k in ELSEWHERE}))
        partition = read_partition(directory.checked(directory.partition), len(dataset))
        trainer = build_trainer(changed.experiment, changed.card, "cpu")
        return carry_out(changed, dataset, partition, trainer, progress, watchers, start or None)


def require_same_code(run: Run) -> None:
    """Refuse to continue a run of other code or on other kernels: its bits would be others."""
    noted = run.environment()
    if code_digest() != noted["code"]:
        raise InputError(
            f"run {str(run.path)!r} was started by another version of the code ({noted['xfed']}, {noted['code']}); "
            "only the same version continues it bit for bit"
        )
    Kernels.of_note(noted["kernels"]).require()


def starting_round(run: Run, from_round: int | None) -> int:
    """Tell after which round a run goes on; 0 for one without a checkpoint."""
    checkpoints = run.directory.checkpoints
    if from_round is None and not checkpoints.rounds():
        return 0
    return checkpoints.read(from_round).round
