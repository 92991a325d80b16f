"""FedAvg in xfed, by `xfed.run` as a user would: worker processes, and a checkpoint after every round."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.peers.contest import Clock
from xfed import Experiment, Watcher, run
from xfed.runs.records import RoundRecord


class Noting(Watcher):
    """Watches a run, and ends it after the contest's rounds."""

    def __init__(self, clock: Clock, samples: list[int]) -> None:
        self._clock, self._samples = clock, samples

    def round_ended(self, record: RoundRecord, accuracy: object) -> None:
        """Take a note of all samples so far."""
        assert accuracy is None, "no measured round is evaluated"
        self._clock.note(sum(self._samples[: record.round]))
        if record.round == len(self._samples):
            raise KeyboardInterrupt


def main(folder: Path) -> None:
    given = json.loads((folder / "ours.json").read_text(encoding="utf-8"))
    experiment = Experiment.from_mapping({**given["experiment"], "out": folder / "run"})
    clock = Clock()
    clock.note(0)
    with suppress(KeyboardInterrupt):
        run(experiment, progress=False, watchers=[Noting(clock, given["samples"])])
    clock.write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
