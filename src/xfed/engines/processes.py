"""One single-threaded worker process per core; data and messages in shared memory.

A worker that dies is replaced and its tasks are run again: work depends on the task alone, so the bits are the same.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import wait

import torch
from pydantic import Field, PositiveFloat

from xfed.components import BaseSettings
from xfed.engines.workers.patience import deadline, late
from xfed.engines.workers.process import Worker
from xfed.engines.workers.segments import share_samples
from xfed.engines.workers.signals import undisturbed
from xfed.protocol.engine import GroupEngine, Job, engine
from xfed.protocol.words import Evaluated, Failed, Task, Trained

DEATHS_PER_TASK = 3
PARTING_SECONDS = 1.0
"""What idle workers get to end by themselves."""
log = logging.getLogger("xfed")


@engine("processes")
class ProcessEngine(GroupEngine):
    """Worker processes on this machine, one per core or GPU; they start at the first task and stay."""

    class Settings(BaseSettings):
        timeout: PositiveFloat | None = Field(
            None, description="seconds a client may take for its task; its worker is then replaced, and it has failed"
        )

    settings: Settings

    def open(self, job: Job) -> None:
        """Lay the samples where workers need no copy."""
        self._files = ExitStack()
        self._job = replace(job, dataset=share_samples(job.dataset, self._files))
        self._workers: list[Worker] = []

    def close(self) -> None:
        """End all workers, and soon: those at work are not waited for."""
        with undisturbed():
            for worker in self._workers:
                worker.leave()
            until = time.monotonic() + PARTING_SECONDS
            for worker in self._workers:
                worker.close(max(0.0, until - time.monotonic()))
            self._workers = []
            self._files.close()

    def results(self, groups: Iterable[Sequence[Task]]) -> Iterator[Trained | Evaluated | Failed]:
        """Deal groups of tasks out one by one, each taken only when a worker is free for it."""
        if not self._workers:
            devices = worker_devices(self._job.device, self._job.workers)
            self._workers = [Worker(self._job, device) for device in devices]
            for worker in self._workers:
                worker.start()
        waiting = iter(groups)
        again: deque[Sequence[Task]] = deque()
        deaths: Counter[int] = Counter()
        while True:
            for worker in self._workers:
                group = (again.popleft() if again else next(waiting, None)) if not worker.doing else None
                if group is not None:
                    worker.give(group)
            busy = {worker.connection: worker for worker in self._workers if worker.doing}
            if not busy:
                return
            for connection in wait(list(busy), timeout=self._until_timeout(busy.values())):
                worker = busy[connection]  # type: ignore[index]
                tasks = worker.doing
                try:
                    yield from worker.take()
                except (EOFError, ConnectionResetError):
                    self._replace(worker)
                    cause = cause_of_death(worker.process.exitcode)
                    deaths[tasks[0].client] += 1
                    if deaths[tasks[0].client] < DEATHS_PER_TASK:
                        log.warning("a worker %s; another takes over what it was doing", cause)
                        again.append(tasks)
                    else:
                        yield from _lost(tasks, cause)
            yield from self._overdue()

    def _until_timeout(self, busy: Iterable[Worker]) -> float | None:
        if self.settings.timeout is None:
            return None
        limit = self.settings.timeout
        return max(0.0, min(deadline(worker.since, worker.doing, limit) for worker in busy) - time.monotonic())

    def _overdue(self) -> Iterator[Failed]:
        """Replace workers that took too long."""
        limit = self.settings.timeout
        for worker in list(self._workers):
            if limit is not None and worker.doing and time.monotonic() >= deadline(worker.since, worker.doing, limit):
                worker.kill()
                self._replace(worker)
                yield from late(worker.doing, limit)

    def _replace(self, worker: Worker) -> None:
        """Put a new worker in the place of one that is gone."""
        with undisturbed():
            worker.close()
        fresh = self._workers[self._workers.index(worker)] = Worker(self._job, worker.device)
        fresh.start()


def cause_of_death(code: int | None) -> str:
    """Say why a process ended; SIGKILL, which nobody here sends unasked, is what a system short of memory sends."""
    if code == -signal.SIGKILL:
        return (
            "was killed by SIGKILL, most likely by the system's out-of-memory killer: fewer --workers, a smaller "
            "--batch-size or a narrower network need less memory"
        )
    if code == 255:  # what multiprocessing makes of it
        return "ended after its fork server, so that nobody knows why"
    return f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"


def _lost(tasks: Sequence[Task], cause: str) -> list[Failed]:
    reason = f"died {DEATHS_PER_TASK} times with its worker, which {cause}"
    return [Failed(task.client, reason, "lost") for task in tasks]


def worker_devices(device: str, workers: int | None) -> list[str]:
    """Give each worker's device: one worker per core; with `cuda`, one per GPU; with any other device, one on it."""
    kind = torch.device(device)
    if kind.type == "cpu":
        return [device] * (workers or os.cpu_count() or 1)
    if kind.type == "cuda" and kind.index is None:
        count = torch.cuda.device_count()
        return [f"cuda:{number % count}" for number in range(workers or count)]
    return [device] * (workers or 1)
