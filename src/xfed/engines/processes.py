"""One single-threaded worker process per core; data and messages in shared memory.

Tasks are dealt out in the order given, results handed back in that same order. A worker that dies is replaced
and its task run again: work depends on the task alone, so the bits are the same.
"""

from __future__ import annotations

import signal
import sys
import traceback
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Literal

import torch
import torch.multiprocessing as multiprocessing
from threadpoolctl import threadpool_limits

from xfed.data.dataset import Dataset
from xfed.engines.allocator import keep_freed_memory, return_freed_memory
from xfed.engines.mailbox import Inbox, Letter, Outbox
from xfed.errors import ClientError, InputError
from xfed.evaluation.accuracy import Evaluation
from xfed.federation.host import Host, Task, Trained, named
from xfed.protocol.message import Message

Kind = Literal["train", "evaluate"]
Tasks = Sequence[Task]
HostBuilder = Callable[[Dataset], Host]
DEATHS_PER_TASK = 3


def work(build: HostBuilder, dataset: Dataset, connection: Connection) -> None:
    """Serve tasks until the other end is gone: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threadpool_limits(1)
    keep_freed_memory()
    inbox, outbox = Inbox(), Outbox()
    host: Host | None = None
    try:
        while True:
            kind, tasks, letter = connection.recv()
            try:
                host = host or build(dataset)
                tasks = [replace(task, message=m) for task, m in zip(tasks, inbox.read(letter), strict=True)]
                connection.send(_answer(host, kind, tasks, outbox))
            except InputError as error:
                connection.send(error)
            except Exception:
                connection.send(ClientError(f"{kind} of {named(tasks)} failed:\n{traceback.format_exc()}"))
            return_freed_memory()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        outbox.close()
        inbox.close()


def _answer(host: Host, kind: Kind, tasks: Tasks, outbox: Outbox) -> list[Evaluation] | tuple[Letter, Trained]:
    """Do the work; an upload then lies in shared memory and nowhere else."""
    if kind == "evaluate":
        return host.evaluate(tasks)
    trained = host.train(*tasks)
    letter = outbox.put([trained.upload])
    outbox.forget()
    return letter, replace(trained, upload=Message())


def _context() -> SpawnContext | ForkServerContext:
    """Fork workers off a server that has imported everything once; where there is none, start them from scratch.

    Imports take seconds and 100 MB of each worker; a fork is there at once, also in the place of one that died.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "xfed.running"])
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

    build: HostBuilder
    dataset: Dataset
    outbox: Outbox = field(default_factory=Outbox)
    inbox: Inbox = field(default_factory=Inbox)
    doing: int | None = None

    def __post_init__(self) -> None:
        context = _context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(self.build, self.dataset, theirs), daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()

    def give(self, number: int, kind: Kind, tasks: Tasks) -> None:
        """Hand tasks over; that a worker has died shows when its answer is taken."""
        self.doing = number
        with suppress(BrokenPipeError, ConnectionResetError):
            letter = self.outbox.put([task.message for task in tasks])
            self.connection.send((kind, [replace(task, message=Message()) for task in tasks], letter))

    def take(self) -> Trained | list[Evaluation]:
        """Receive a result; raises what the worker raised, or EOFError when it died."""
        answer = self.connection.recv()
        self.doing = None
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            return answer
        letter: Letter
        letter, trained = answer
        [seen] = self.inbox.read(letter)
        upload = Message({name: tensor.clone() for name, tensor in seen.tensors.items()}, seen.values)
        result: Trained = replace(trained, upload=upload)
        return result

    def close(self, died: bool = False) -> None:
        """End the process and free its memory."""
        self.connection.close()
        self.process.join(timeout=0 if died else 10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            died = True
        self.outbox.close()
        try:
            self.inbox.close(unlink=died)
        except FileNotFoundError:
            self.inbox.close()


class ProcessEngine:
    """Deals tasks out to worker processes, one for each builder. They start at the first task and stay."""

    def __init__(self, builders: Sequence[HostBuilder], dataset: Dataset) -> None:
        self._builders = builders
        self._dataset = dataset.shared()
        self._workers: list[_Worker] = []

    def train(self, tasks: Iterable[Task]) -> Iterator[Trained]:
        """Train clients."""
        for result in self._results("train", ((task,) for task in tasks)):
            assert isinstance(result, Trained)
            yield result

    def evaluate(self, groups: Iterable[Sequence[Task]]) -> Iterator[Evaluation]:
        """Evaluate clients."""
        for result in self._results("evaluate", groups):
            assert isinstance(result, list)
            yield from result

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _results(self, kind: Kind, jobs: Iterable[Tasks]) -> Iterator[Trained | list[Evaluation]]:
        """Deal jobs out one by one, each taken only when a worker is free for it; results in the order of the jobs."""
        if not self._workers:
            self._workers = [_Worker(build, self._dataset) for build in self._builders]
        numbered = enumerate(jobs)
        again: deque[tuple[int, Tasks]] = deque()
        under_way: dict[int, Tasks] = {}
        ready: dict[int, Trained | list[Evaluation]] = {}
        deaths: Counter[int] = Counter()
        for awaited in count():
            while awaited not in ready:
                for worker in self._workers:
                    job = (again.popleft() if again else next(numbered, None)) if worker.doing is None else None
                    if job is not None:
                        under_way[job[0]] = job[1]
                        worker.give(job[0], kind, job[1])
                busy = {worker.connection: worker for worker in self._workers if worker.doing is not None}
                if not busy:
                    return
                for connection in wait(list(busy)):
                    worker = busy[connection]  # type: ignore[index]
                    doing = worker.doing
                    assert doing is not None
                    tasks = under_way.pop(doing)
                    try:
                        ready[doing] = worker.take()
                    except (EOFError, ConnectionResetError):
                        deaths[doing] += 1
                        self._replace(worker, tasks, deaths[doing])
                        again.append((doing, tasks))
            yield ready.pop(awaited)

    def _replace(self, worker: _Worker, tasks: Tasks, deaths: int) -> None:
        """Put a new worker in the place of one that died, unless the task keeps killing them."""
        worker.close(died=True)
        if deaths >= DEATHS_PER_TASK:
            self._workers.remove(worker)
            self.close()
            raise ClientError(
                f"the worker on {named(tasks)} died {deaths} times "
                f"(exit code {worker.process.exitcode}); out of memory? try fewer --workers"
            )
        self._workers[self._workers.index(worker)] = _Worker(worker.build, self._dataset)
