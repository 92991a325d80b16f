"""How long CIFAR-100 takes to load the second time, and how much memory it needs: `python -m benchmarks.loading`.

Needs the raw data under XFED_DATA. Each load happens in a process of its own. Memory is the peak resident set
after all of the data was read, above what the process had before, against the uint8 size of the data (Linux).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from xfed.data.dataset import datasets
from xfed.errors import InputError

MOST_SECONDS = 1.0
MOST_MEMORY = 2.0


def resident(field: str) -> int:
    """Read a memory figure of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(field)


def load() -> dict[str, float]:
    """Load in this process; give seconds and memory over data size."""
    source = datasets.get("cifar100")()
    before = resident("VmRSS")
    start = time.perf_counter()
    data = source.load()
    data.checksum()
    seconds = time.perf_counter() - start
    data.inputs.numpy().max()
    data.labels.numpy().max()
    size = data.inputs.numel() * data.inputs.element_size()
    return {"seconds": seconds, "memory": (resident("VmHWM") - before) / size}


def measured() -> dict[str, float]:
    answer = subprocess.run([sys.executable, "-m", "benchmarks.loading", "--once"], stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(answer.stdout)
    return figures


def main() -> int:
    if sys.argv[1:] == ["--once"]:
        try:
            print(json.dumps(load()))
        except InputError as error:
            sys.exit(f"benchmarks.loading: {error}")
        return 0
    try:
        first, second = measured(), measured()
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"first load: {first['seconds']:.2f} s, peak memory {first['memory']:.2f} × the data")
    print(f"second load of cifar100: {second['seconds']:.3f} s, peak memory {second['memory']:.2f} × the uint8 data")
    return int(second["seconds"] >= MOST_SECONDS or second["memory"] >= MOST_MEMORY)


if __name__ == "__main__":
    sys.exit(main())
