"""How long a device takes: a JSON table of milliseconds by exit, measured here or brought from another device."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np


class DeviceError(ValueError):
    """A latency table that cannot be used, told in one sentence."""


@dataclass(frozen=True)
class Device:
    """Latencies of one network on one device: `exits_ms[j]` is the time until an answer from exit j + 1.

    `exits_ms` is wall time, `exits_cpu_ms` the computing thread's own time; both per sample at batch 1.
    """

    device: str
    runtime: str
    threads: int
    exits_ms: tuple[float, ...]
    exits_cpu_ms: tuple[float, ...]
    repetitions: int

    def __post_init__(self) -> None:
        for name in ("device", "runtime"):
            if not isinstance(getattr(self, name), str):
                raise DeviceError(f"{name} of the latency table is {getattr(self, name)!r}; allowed: text")
        for name in ("threads", "repetitions"):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                raise DeviceError(f"{name} of the latency table is {value!r}; allowed: whole numbers from 1")
        for name in ("exits_ms", "exits_cpu_ms"):
            times = getattr(self, name)
            if not (isinstance(times, tuple) and times and all(_is_time(time) for time in times)):
                raise DeviceError(f"{name} of the latency table is {times!r}; allowed: a number above 0 for each exit")
        if len(self.exits_ms) != len(self.exits_cpu_ms):
            raise DeviceError(
                f"the latency table has exits_ms for {len(self.exits_ms)} exits, "
                f"but exits_cpu_ms for {len(self.exits_cpu_ms)}"
            )

    @property
    def latencies(self) -> tuple[float, ...]:
        """Give wall milliseconds by exit that never fall: a later exit cannot come sooner, only be measured so."""
        return tuple(np.maximum.accumulate(self.exits_ms).tolist())

    @classmethod
    def from_json(cls, value: Any) -> Device:
        """Make a table from decoded JSON."""
        if not isinstance(value, Mapping):
            raise DeviceError(f"a latency table is a JSON object, not {type(value).__name__}")
        names = [field.name for field in fields(cls)]
        if set(value) != set(names):
            raise DeviceError(f"a latency table has {', '.join(map(str, value))}; needed: {', '.join(names)}")
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items()}
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """Give the table, ready to be encoded."""
        return {name: list(item) if isinstance(item, tuple) else item for name, item in asdict(self).items()}

    @classmethod
    def read(cls, path: Path) -> Device:
        """Read a table from its file."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except DeviceError as error:
            raise DeviceError(f"latency table {str(path)!r}: {error}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise DeviceError(f"latency table {str(path)!r} cannot be read: {error}") from None

    def write(self, path: Path) -> None:
        """Write the table to a file."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
