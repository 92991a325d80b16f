"""What a finished run offers to calibration: traces, costs and who there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace, latest_trace
from xfed.running import Run


@dataclass(frozen=True)
class Traces:
    """The calibration trace to choose on, and the test trace to report on, where it is there."""

    calibration: ExitTrace
    test: ExitTrace | None
    macs: tuple[float, ...]
    clients: range


def read_traces(run: Run) -> Traces:
    """Read the latest traces of a run; refuse a run that has nothing to calibrate or nothing to calibrate with."""
    name = str(run.path)
    macs = tuple(float(macs) for macs in run.environment()["network"]["exit_macs"])
    if len(macs) == 1:
        raise InputError(f"the network of run {name!r} has a single exit; there is nothing to calibrate")
    path = latest_trace(run.path, "calibration")
    calibration = None if path is None else _read(path, len(macs))
    if calibration is None or not len(calibration):
        if run.experiment.calibration == 0:
            raise InputError(
                f"run {name!r} set no calibration samples aside (its calibration share is 0), and thresholds are never "
                "chosen on test samples; train with --calibration 0.2"
            )
        raise InputError(f"run {name!r} has no calibration trace; 'xfed resume {run.path}' finishes it")
    tested = latest_trace(run.path, "test")
    test = None if tested is None else _read(tested, len(macs))
    return Traces(calibration, test, macs, range(run.experiment.clients))


def _read(path: Path, exits: int) -> ExitTrace:
    trace = ExitTrace.read(path)
    if trace.exits != exits:
        raise InputError(f"exit trace {str(path)!r} has {trace.exits} exits, but the run's network {exits}")
    return trace
