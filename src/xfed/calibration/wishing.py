"""What people wish of early exit, as numbers or as text ('60%', '5ms'), made into what a search can meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xfed.calibration.calibrate import CostLimit, Deadline, MaxDrop, Wish
from xfed.calibration.reading import Traces
from xfed.calibration.risk import DELTA, Loss, RiskLimit
from xfed.errors import InputError
from xfed_runtime.device import Device, DeviceError

Quantity = float | str
NAMES = ("budget", "latency", "deadline", "max_drop", "risk")
QUANTILE = 0.95
"""Which share of answers keeps a deadline, where nothing is said."""


@dataclass(frozen=True)
class Wishes:
    """Exactly one of the first five, and what goes with some of them."""

    budget: Quantity | None = None
    """Mean cost per input: a share of the full model's ('60%', or 0.6), or MACs (3.5e8)."""
    latency: Quantity | None = None
    """Mean milliseconds per input, by the device's table."""
    deadline: Quantity | None = None
    """Milliseconds until each input's answer, by the device's table."""
    max_drop: Quantity | None = None
    """How far accuracy may fall below the full model's: '1%', or 0.01."""
    risk: float | None = None
    """Largest rate of losses, guaranteed at confidence 1 − delta."""
    delta: float | None = None
    """With risk: how often the guarantee may fail; 0.1."""
    loss: Loss | None = None
    """With risk: what counts as a loss; disagreement with the full model."""
    quantile: float | None = None
    """With a deadline: share of answers that shall keep it; 0.95."""
    device: str | Path | None = None
    """Table of latencies by exit, which `xfed device-bench` makes; costs are then in ms."""

    def __post_init__(self) -> None:
        given = [name for name in NAMES if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(f"calibrate needs exactly one of {', '.join(NAMES[:-1])} and {NAMES[-1]}")
        if given[0] in ("latency", "deadline") and self.device is None:
            raise InputError(
                f"{given[0]} needs device, the table of this device's latencies; 'xfed device-bench' makes one"
            )

        for name, of in (("delta", "risk"), ("loss", "risk"), ("quantile", "deadline")):
            if getattr(self, name) is not None and given[0] != of:
                raise InputError(f"{name} goes with {of}, not with {given[0]}")
        self._limit()

    def costs(self, traces: Traces) -> tuple[Sequence[float], str]:
        """Give what leaving at each exit costs, and the unit."""
        return (traces.macs, "MACs") if self.device is None else (self._table(traces).latencies, "ms")

    def wish(self, traces: Traces) -> Wish | RiskLimit | Deadline:
        """Say it in numbers."""
        costs, unit = self.costs(traces)
        if self.budget is not None:
            return CostLimit(_budget(self.budget, costs, unit), unit)
        if self.latency is not None:
            return CostLimit(_milliseconds("latency", self.latency), unit)
        if self.max_drop is not None:
            return MaxDrop(_number("max_drop", self.max_drop, "%", "a percentage such as 1%"))
        if limit := self._limit():
            return limit
        assert self.deadline is not None
        milliseconds = _milliseconds("deadline", self.deadline)
        quantile = QUANTILE if self.quantile is None else self.quantile
        try:
            return Deadline(milliseconds, quantile, self._table(traces).by_quantile(quantile))
        except DeviceError as error:
            raise InputError(str(error)) from None

    def _limit(self) -> RiskLimit | None:
        """Give the limit of risk, where that is the wish; one that cannot be meant is refused."""
        if self.risk is None:
            return None
        delta = DELTA if self.delta is None else self.delta
        return RiskLimit(self.risk, delta, "disagreement" if self.loss is None else self.loss)

    def _table(self, traces: Traces) -> Device:
        assert self.device is not None
        try:
            table = Device.read(Path(self.device))
        except DeviceError as error:
            raise InputError(str(error)) from None
        if len(table.latencies) != len(traces.macs):
            raise InputError(
                f"latency table {str(self.device)!r} has {len(table.latencies)} exits, but the run's network "
                f"{len(traces.macs)}"
            )
        return table


def _budget(given: Quantity, costs: Sequence[float], unit: str) -> float:
    allowed = "a share such as 60%, or MACs such as 3.5e8"
    value = _number("budget", given, "%", allowed, bare=1.0)
    if value <= 1 or (isinstance(given, str) and given.endswith("%")):
        return value * costs[-1]
    if unit != "MACs":
        raise InputError(f"budget {given!r} is in MACs, but with device costs are in ms; give a share, or latency")
    return value


def _milliseconds(name: str, given: Quantity) -> float:
    return _number(name, given, "ms", "milliseconds such as 5ms", suffixed=1.0, bare=1.0)


def _number(name: str, given: Quantity, suffix: str, allowed: str, suffixed: float = 0.01, bare: float = 0.01) -> float:
    """Read a number, or text with or without a suffix, each with its factor."""
    factor = 1.0
    if isinstance(given, str):
        factor = suffixed if given.endswith(suffix) else bare
    try:
        value = float(given.removesuffix(suffix) if isinstance(given, str) else given) * factor
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} is {given!r}; allowed: {allowed}")
    return value
