"""How long a device takes: a JSON table of milliseconds by exit, measured here or brought from another device."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xfed_runtime.documents import Document

OPTIONAL = ("exits_p95_ms", "exits_p99_ms", "peak_memory_mb")
"""Fields that a table may lack."""


class DeviceError(ValueError):
    """A latency table that cannot be used, told in one sentence."""


QUANTILES = (0.5, 0.95, 0.99)
"""Shares of answers that a deadline can be kept for: a table has their latencies."""


class Latencies(NamedTuple):
    """Milliseconds until each exit's answer, never falling: usual ones, and slow ones to keep deadlines by."""

    usual: tuple[float, ...]
    slow: tuple[float, ...]

    @classmethod
    def of(cls, times: Sequence[float]) -> Latencies:
        """Take each exit's time for a usual one and for a slow one."""
        return cls(tuple(times), tuple(times))


@dataclass(frozen=True)
class Device(Document):
    """Latencies of one network on one device: `exits_ms[j]` is the time until an answer from exit j + 1.

    `exits_ms` is wall time, `exits_cpu_ms` the computing thread's own time; both medians per sample at batch 1. Of wall
    time there may also be the times that 95 % and 99 % of answers keep within, and of memory the process's peak.
    """

    called: ClassVar[str] = "latency table"
    refused: ClassVar[type[ValueError]] = DeviceError

    device: str
    runtime: str
    threads: int
    exits_ms: tuple[float, ...]
    exits_cpu_ms: tuple[float, ...]
    repetitions: int
    exits_p95_ms: tuple[float, ...] | None = None
    exits_p99_ms: tuple[float, ...] | None = None
    peak_memory_mb: float | None = None

    def __post_init__(self) -> None:
        for name in ("device", "runtime"):
            if not isinstance(getattr(self, name), str):
                raise DeviceError(f"{name} of the latency table is {getattr(self, name)!r}; allowed: text")
        for name in ("threads", "repetitions"):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                raise DeviceError(f"{name} of the latency table is {value!r}; allowed: whole numbers from 1")
        if self.peak_memory_mb is not None and not _is_time(self.peak_memory_mb):
            raise DeviceError(f"peak_memory_mb of the latency table is {self.peak_memory_mb!r}; allowed: above 0")
        for name in ("exits_ms", "exits_cpu_ms", "exits_p95_ms", "exits_p99_ms"):
            times = getattr(self, name)
            if times is None and name in OPTIONAL:
                continue
            if not (isinstance(times, tuple) and times and all(_is_time(time) for time in times)):
                raise DeviceError(f"{name} of the latency table is {times!r}; allowed: a number above 0 for each exit")
            if len(times) != len(self.exits_ms):
                raise DeviceError(
                    f"the latency table has exits_ms for {len(self.exits_ms)} exits, but {name} for {len(times)}"
                )

    @property
    def latencies(self) -> tuple[float, ...]:
        """Give wall milliseconds by exit that never fall: a later exit cannot come sooner, only be measured so."""
        return _rising(self.exits_ms)

    def by_quantile(self, quantile: float | None) -> Latencies:
        """Give the latencies to keep a deadline for such a share of answers; for half of them unless given."""
        tables = dict(zip(QUANTILES, (self.exits_ms, self.exits_p95_ms, self.exits_p99_ms), strict=True))
        if quantile is not None and quantile not in tables:
            raise DeviceError(f"quantile is {quantile!r}; allowed: {', '.join(map(str, QUANTILES))}")
        slow = tables[0.5 if quantile is None else quantile]
        if slow is None:
            raise DeviceError(
                f"the latency table has no latencies for the quantile {quantile}; measure the device anew"
            )
        return Latencies(self.latencies, _rising(np.maximum(slow, self.exits_ms).tolist()))

    @classmethod
    def check(cls, value: Any) -> None:
        """Refuse what is no table with all that is needed."""
        if not isinstance(value, Mapping):
            raise DeviceError(f"a latency table is a JSON object, not {type(value).__name__}")
        names = [field.name for field in fields(cls)]
        needed = [name for name in names if name not in OPTIONAL]
        if not set(needed) <= set(value) <= set(names):
            raise DeviceError(f"a latency table has {', '.join(map(str, value))}; needed: {', '.join(needed)}")


def _rising(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(np.maximum.accumulate(times).tolist())


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
