"""How long a network takes on this device, by exit."""

from __future__ import annotations

import platform
import time

import numpy as np
import onnxruntime

from xfed_runtime.device import Device
from xfed_runtime.memory import peak_memory_mb
from xfed_runtime.policy import Policy
from xfed_runtime.runtime import Runtime


def measure(runtime: Runtime, repetitions: int = 200, threads: int = 1, warm_up: int = 5) -> Device:
    """Time one sample to each exit, taking turns, so that what else the device does meets all exits alike.

    Medians of wall time, preprocessing included, and of CPU time: this thread's, or with several threads the
    process's; of wall time also the 95 % and 99 % quantiles. `threads` is what the runtime was loaded with.
    """
    example = runtime.inputs.example()
    policies = [Policy("fixed", exit=number) for number in range(1, runtime.exits + 1)]
    cpu_clock = time.thread_time if threads == 1 else time.process_time
    wall = np.zeros((repetitions, runtime.exits))
    cpu = np.zeros_like(wall)
    for repetition in range(-warm_up, repetitions):
        for index, policy in enumerate(policies):
            began, cpu_began = time.perf_counter(), cpu_clock()
            runtime.predict(example, policy)
            if repetition >= 0:
                cpu[repetition, index] = 1000 * (cpu_clock() - cpu_began)
                wall[repetition, index] = 1000 * (time.perf_counter() - began)
    return Device(
        device=f"{platform.node()} ({platform.machine()}, {platform.system()})",
        runtime=f"onnxruntime {onnxruntime.__version__}, {runtime.format}",
        threads=threads,
        exits_ms=tuple(np.median(wall, axis=0).tolist()),
        exits_cpu_ms=tuple(np.median(cpu, axis=0).tolist()),
        repetitions=repetitions,
        exits_p95_ms=tuple(np.quantile(wall, 0.95, axis=0).tolist()),
        exits_p99_ms=tuple(np.quantile(wall, 0.99, axis=0).tolist()),
        peak_memory_mb=peak_memory_mb(),
    )
