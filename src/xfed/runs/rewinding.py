"""Going back to a round, so that a run goes on from there and nothing of before stands beside what comes."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

from xfed.runs.directory import RunDirectory
from xfed.runs.index import Index
from xfed.runs.store import ClientStore


def rewind(directory: RunDirectory, round: int) -> None:
    """Drop what was written after a round, checkpoints first: then an interruption leaves nothing to go on from."""
    records = directory.rounds()  # read before anything goes: what is damaged is an error that changes nothing
    directory.finished_file.unlink(missing_ok=True)
    for later in directory.checkpoints.rounds():
        if later > round:
            directory.checkpoints.drop(later)
    for folder in (directory.metrics, directory.traces, directory.notes):
        for path in folder.glob("*-*.*"):
            number = re.search(r"-(\d+)\.", path.name)
            if number is not None and int(number[1]) > round:
                path.unlink()
    for states in (directory.client_states, directory.server_states):
        ClientStore(states).drop_after(round)
    left = [record for record in records if record.round <= round]
    if not left:
        directory.rounds_file.unlink(missing_ok=True)
    elif len(left) < len(records):
        directory.write_rounds(left)


def reopen(directory: RunDirectory, index: Index) -> None:
    """Let a run go on that may be finished: what belongs to its end goes, and comes anew at the new end."""
    directory.finished_file.unlink(missing_ok=True)
    directory.index.write(replace(index, finished=None))
    for folder in (directory.models, directory.policies):
        shutil.rmtree(folder, ignore_errors=True)
    for path in directory.traces.glob("calibration-*.parquet"):
        path.unlink()
