"""FedAvg in xfed, by `xfed.run` as a user would: worker processes, and a checkpoint after every round."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from benchmarks.peers.contest import Clock
from xfed import Experiment, running
from xfed.federation.run_directory import RoundRecord


class Noting:
    """Takes the place of the progress bar; ends the run after the contest's rounds."""

    def __init__(self, clock: Clock, samples: list[int]) -> None:
        self._clock, self._samples = clock, samples

    def __enter__(self) -> Noting:
        self._clock.note(0)
        return self

    def __exit__(self, *_: object) -> None:
        pass

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
    watching = patch.object(running, "ProgressBar", lambda *_: Noting(clock, given["samples"]))
    with watching, suppress(running.Interrupted):
        running.run(experiment)
    clock.write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
