"""Latency tables: files, quantiles, and what is no table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xfed_runtime.device import Device, DeviceError, Latencies

TABLE: dict[str, Any] = {
    "device": "board",
    "runtime": "onnxruntime 1.31",
    "threads": 1,
    "exits_ms": [1.0, 2.5, 2.4],
    "exits_cpu_ms": [1, 2, 3],
    "repetitions": 50,
}


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    device = Device.from_json(TABLE)
    device.write(tmp_path / "device.json")
    assert json.loads((tmp_path / "device.json").read_text()) == TABLE
    assert Device.read(tmp_path / "device.json") == device


def test_latencies_never_fall() -> None:
    assert Device.from_json(TABLE).latencies == (1.0, 2.5, 2.5)


def test_latencies_by_quantile() -> None:
    device = Device.from_json(TABLE | {"exits_p95_ms": [0.9, 4.0, 3.0], "peak_memory_mb": 80.5})
    assert device.by_quantile(None) == device.by_quantile(0.5) == Latencies.of((1.0, 2.5, 2.5))
    assert device.by_quantile(0.95) == Latencies((1.0, 2.5, 2.5), (1.0, 4.0, 4.0))
    with pytest.raises(DeviceError, match=r"no latencies for the quantile 0.99; measure the device anew"):
        device.by_quantile(0.99)
    with pytest.raises(DeviceError, match=r"quantile is 0.7; allowed: 0.5, 0.95, 0.99"):
        device.by_quantile(0.7)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"device": 3}, "device of the latency table is 3; allowed: text"),
        ({"threads": 0}, "threads of the latency table is 0; allowed: whole numbers from 1"),
        ({"repetitions": True}, "repetitions of the latency table is True"),
        ({"exits_ms": []}, "exits_ms of the latency table is"),
        ({"exits_ms": [1, 0, 2]}, "a number above 0 for each exit"),
        ({"exits_ms": [1, float("inf"), 2]}, "a number above 0 for each exit"),
        ({"exits_ms": [1, 10**400, 2]}, "a number above 0 for each exit"),
        ({"exits_ms": "fast"}, "a number above 0 for each exit"),
        ({"exits_cpu_ms": [1, 2]}, "exits_ms for 3 exits, but exits_cpu_ms for 2"),
        ({"exits_p95_ms": [1.0]}, "exits_ms for 3 exits, but exits_p95_ms for 1"),
        ({"exits_p99_ms": [1, 2, -3]}, "exits_p99_ms of the latency table is"),
        ({"peak_memory_mb": 0}, "peak_memory_mb of the latency table is 0"),
        ({"colour": 1}, "needed: device, runtime, threads, exits_ms, exits_cpu_ms, repetitions"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(TABLE | changes))
    with pytest.raises(DeviceError, match=sentence) as caught:
        Device.read(path)
    assert "device.json" in str(caught.value)


def test_no_table(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(DeviceError, match="a latency table is a JSON object, not list"):
        Device.read(tmp_path / "list.json")
    with pytest.raises(DeviceError, match="cannot be read"):
        Device.read(tmp_path / "missing.json")
