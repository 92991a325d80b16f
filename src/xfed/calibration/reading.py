"""What a finished run offers to calibration: traces, costs and who there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xfed.errors import InputError
from xfed.evaluation.traces import ExitTrace
from xfed.runs.directory import TraceOf
from xfed.runs.reader import Run


class NothingToCalibrateError(InputError):
    """A run that has nothing to calibrate, or nothing to calibrate with; one that is damaged is another matter."""


@dataclass(frozen=True)
class Traces:
    """The calibration trace to choose on, and the test trace to report on, where it is there."""

    calibration: ExitTrace
    test: ExitTrace | None
    macs: tuple[float, ...]
    clients: range
    weights: Mapping[TraceOf, Mapping[int, float]] = field(default_factory=dict)
    """How many clients each one in a trace stands for; one, where nothing is said."""


def read_traces(run: Run) -> Traces:
    """Read the latest traces of a run; refuse a run that has nothing to calibrate or nothing to calibrate with."""
    name = str(run.path)
    macs = tuple(float(macs) for macs in run.exit_macs)
    if len(macs) == 1:
        raise NothingToCalibrateError(f"the network of run {name!r} has a single exit; there is nothing to calibrate")
    calibration, test = (_fitting(run, of, len(macs)) for of in ("calibration", "test"))
    if calibration is None or not len(calibration):
        if not run.experiment.evaluation.traces:
            raise NothingToCalibrateError(f"run {name!r} kept no exit traces; train without --traces false")
        if not run.partition().sizes("calibration").any():
            raise NothingToCalibrateError(
                f"run {name!r} set no calibration samples aside (its calibration share is 0), and thresholds are never "
                "chosen on test samples; train with --calibration 0.2"
            )
        raise NothingToCalibrateError(f"run {name!r} has no calibration trace; 'xfed resume {run.path}' finishes it")
    weights: dict[TraceOf, dict[int, float]] = {of: run.weights(of) for of in ("calibration", "test")}
    return Traces(calibration, test, macs, range(run.experiment.dealing.clients), weights)


def _fitting(run: Run, of: TraceOf, exits: int) -> ExitTrace | None:
    trace = run.trace(of)
    if trace is not None and trace.exits != exits:
        path = run.directory.latest_trace(of)
        raise InputError(f"exit trace {str(path)!r} has {trace.exits} exits, but the run's network {exits}")
    return trace
