"""A plug-in that kills the run at one chosen point (XFED_TEST_KILL), as a power cut would."""

import os
import signal
from typing import Any

from xfed import progress
from xfed.protocol import uploads
from xfed.runs import checkpoint, store

POINT = os.environ.get("XFED_TEST_KILL")
ROUND = 2


def die() -> None:
    """Kill the main process, and this one if it is a worker."""
    os.kill(int(os.environ["XFED_TEST_MAIN"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if POINT is not None and "XFED_TEST_MAIN" not in os.environ:
    os.environ["XFED_TEST_MAIN"] = str(os.getpid())

if POINT == "mid-round":
    added = uploads.Uploads.add
    seen = {"uploads": 0}

    def add(self: Any, client: int, message: Any) -> None:
        added(self, client, message)
        seen["uploads"] += 1
        if seen["uploads"] == 5:  # three uploads a round: the second of round 2
            die()

    uploads.Uploads.add = add

if POINT == "client-state":
    written = store.ClientStore.write

    def write(self: Any, client: int, version: int, tensors: Any) -> None:
        written(self, client, version, tensors)
        if version == ROUND:
            die()

    store.ClientStore.write = write

if POINT == "checkpoint":
    noted = checkpoint.write_json

    def write_json(path: Any, value: Any) -> None:
        if value["round"] == ROUND:
            die()
        noted(path, value)

    checkpoint.write_json = write_json

if POINT == "between-rounds":

    def round_ended(self: Any, record: Any, accuracy: Any) -> None:
        if record.round == ROUND:
            die()

    progress.LogFile.round_ended = round_ended
