"""One single-threaded worker process per core; data and messages in shared memory.

A worker that dies is replaced and its tasks are run again: work depends on the task alone, so the bits are the same.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext

import torch
import torch.multiprocessing as multiprocessing
from pydantic import Field, PositiveFloat
from threadpoolctl import threadpool_limits

from xfed.components import BaseSettings
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.engines.workers.allocator import keep_freed_memory, return_freed_memory
from xfed.engines.workers.mailbox import Inbox, Outbox
from xfed.errors import InputError
from xfed.federation.carrying import keep_states, with_states
from xfed.federation.host import Host, simulated
from xfed.protocol.engine import GroupEngine, Job, engine
from xfed.protocol.words import Briefing, Evaluated, EvaluateTask, Failed, Task, Trained, TrainTask

DEATHS_PER_TASK = 3
PRELOADED = ["xfed.algorithms.xfed", "xfed.models.convnet", "xfed.data.sources.digits"]


def work(dataset: Dataset, partition: Partition, device: str, connection: Connection) -> None:
    """Answer letters until the other end is gone: the main function of a worker process. The first is the briefing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threadpool_limits(1)
    keep_freed_memory()
    inbox, outbox = Inbox(), Outbox()
    try:
        [briefing] = inbox.read(connection.recv_bytes(), copy=True)
        assert isinstance(briefing, Briefing)
        host: Host | None = None
        while True:
            words = inbox.read(connection.recv_bytes())
            try:
                host = host or Host.of(briefing, simulated(dataset, partition, device), device)
                answers = host.answer(words)
            except InputError as error:
                tasks = [word for word in words if isinstance(word, TrainTask | EvaluateTask)]
                answers = [Failed(task.client, str(error), "input") for task in tasks]
            letter = outbox.put(answers)
            outbox.forget()
            del answers
            connection.send_bytes(letter)
            return_freed_memory()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        outbox.close()
        inbox.close()


def _context() -> SpawnContext | ForkServerContext:
    """Fork workers off a server that has imported everything once; where there is none, start them from scratch.

    Imports take seconds and 100 MB of each worker; a fork is there at once, also in the place of one that died.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *PRELOADED])
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the running script: a worker has no use for it, and importing it again would run it again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@dataclass(eq=False)
class _Worker:
    """One process, the pipe to it, and what it is doing."""

    job: Job
    device: str
    outbox: Outbox = field(default_factory=Outbox)
    inbox: Inbox = field(default_factory=Inbox)
    introduction: Outbox = field(default_factory=Outbox)
    """Holds the briefing until the worker has answered for the first time."""
    doing: Sequence[Task] = ()
    since: float = 0.0

    def __post_init__(self) -> None:
        context = _context()
        self.connection, theirs = context.Pipe()
        arguments = (self.job.dataset, self.job.partition, self.device, theirs)
        self.process = context.Process(target=work, args=arguments, daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(self.introduction.put([self.job.briefing]))

    def give(self, tasks: Sequence[Task]) -> None:
        """Hand tasks over; that a worker has died shows when its answer is taken."""
        self.doing, self.since = tasks, time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(self.outbox.put(with_states(tasks, self.job.states)))

    def take(self) -> list[Trained | Evaluated | Failed]:
        """Receive results; EOFError when the worker died."""
        words = self.inbox.read(self.connection.recv_bytes(), copy=True)
        self.introduction.close()
        self.doing = ()
        return keep_states(words, self.job.states)

    def close(self, died: bool = False) -> None:
        """End the process and free its memory."""
        self.connection.close()
        self.process.join(timeout=0 if died else 10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            died = True
        self.introduction.close()
        self.outbox.close()
        try:
            self.inbox.close(unlink=died)
        except FileNotFoundError:
            self.inbox.close()


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
        self._job = Job(job.briefing, job.dataset.shared(), job.partition, job.states, job.workers, job.device)
        self._workers: list[_Worker] = []

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def results(self, groups: Iterable[Sequence[Task]]) -> Iterator[Trained | Evaluated | Failed]:
        """Deal groups of tasks out one by one, each taken only when a worker is free for it."""
        if not self._workers:
            devices = worker_devices(self._job.device, self._job.workers)
            self._workers = [_Worker(self._job, device) for device in devices]
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
                    deaths[tasks[0].client] += 1
                    if deaths[tasks[0].client] < DEATHS_PER_TASK:
                        again.append(tasks)
                    else:
                        yield from _lost(tasks, worker.process.exitcode)
            yield from self._overdue()

    def _until_timeout(self, busy: Iterable[_Worker]) -> float | None:
        if self.settings.timeout is None:
            return None
        return max(0.0, min(worker.since for worker in busy) + self.settings.timeout - time.monotonic())

    def _overdue(self) -> Iterator[Failed]:
        """Replace workers that took too long."""
        limit = self.settings.timeout
        for worker in list(self._workers):
            if limit is not None and worker.doing and time.monotonic() - worker.since >= limit:
                worker.process.kill()
                self._replace(worker)
                yield from (Failed(t.client, f"did not answer within {limit:g} s", "timeout") for t in worker.doing)

    def _replace(self, worker: _Worker) -> None:
        """Put a new worker in the place of one that is gone."""
        worker.close(died=True)
        self._workers[self._workers.index(worker)] = _Worker(self._job, worker.device)


def _lost(tasks: Sequence[Task], code: int | None) -> list[Failed]:
    reason = f"died {DEATHS_PER_TASK} times (exit code {code}); out of memory? try fewer --workers"
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
