"""One single-threaded worker process per core; data and messages in shared memory.

Tasks are dealt out in the order given, results handed back in that same order. A worker that dies is replaced
and its task run again: work depends on the task alone, so the bits are the same.
"""

from __future__ import annotations

import signal
import sys
import traceback
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Literal

import torch
import torch.multiprocessing as multiprocessing
from threadpoolctl import threadpool_limits

from xfed.data.dataset import Dataset
from xfed.engines.mailbox import Inbox, Letter, Outbox
from xfed.errors import ClientError, InputError
from xfed.evaluation.accuracy import Evaluation
from xfed.federation.host import Host, Task, Trained
from xfed.protocol.message import Message

Kind = Literal["train", "evaluate"]
HostBuilder = Callable[[Dataset], Host]
DEATHS_PER_TASK = 3


def work(build: HostBuilder, dataset: Dataset, connection: Connection) -> None:
    """Serve tasks until the other end is gone: the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threadpool_limits(1)
    inbox, outbox = Inbox(), Outbox()
    host: Host | None = None
    try:
        while True:
            kind, task, letter = connection.recv()
            try:
                host = host or build(dataset)
                task = replace(task, message=inbox.read(letter))
                if kind == "evaluate":
                    connection.send(host.evaluate(task))
                else:
                    trained = host.train(task)
                    connection.send((outbox.put(trained.upload), replace(trained, upload=Message())))
            except InputError as error:
                connection.send(error)
            except Exception:
                text = f"{kind} of client {task.client} in round {task.round} failed:\n{traceback.format_exc()}"
                connection.send(ClientError(text))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        outbox.close()
        inbox.close()


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
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(self.build, self.dataset, theirs), daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()

    def give(self, number: int, kind: Kind, task: Task) -> None:
        """Hand a task over; that a worker has died shows when its answer is taken."""
        self.doing = number
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((kind, replace(task, message=Message()), self.outbox.put(task.message)))

    def take(self) -> Trained | Evaluation:
        """Receive a result; raises what the worker raised, or EOFError when it died."""
        answer = self.connection.recv()
        self.doing = None
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Evaluation):
            return answer
        letter: Letter
        letter, trained = answer
        seen = self.inbox.read(letter)
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
    """Deals tasks out to worker processes. Workers start at the first task and stay."""

    def __init__(self, build: HostBuilder, dataset: Dataset, workers: int) -> None:
        self._build = build
        self._dataset = dataset.shared()
        self._count = workers
        self._workers: list[_Worker] = []

    def train(self, tasks: Sequence[Task]) -> Iterator[Trained]:
        """Train clients."""
        for result in self._results("train", tasks):
            assert isinstance(result, Trained)
            yield result

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Evaluation]:
        """Evaluate clients."""
        for result in self._results("evaluate", tasks):
            assert isinstance(result, Evaluation)
            yield result

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _results(self, kind: Kind, tasks: Sequence[Task]) -> Iterator[Trained | Evaluation]:
        while len(self._workers) < self._count:
            self._workers.append(_Worker(self._build, self._dataset))
        waiting = deque(range(len(tasks)))
        ready: dict[int, Trained | Evaluation] = {}
        deaths = [0] * len(tasks)
        for number in range(len(tasks)):
            while number not in ready:
                for worker in self._workers:
                    if worker.doing is None and waiting:
                        chosen = waiting.popleft()
                        worker.give(chosen, kind, tasks[chosen])
                busy = {worker.connection: worker for worker in self._workers if worker.doing is not None}
                for connection in wait(list(busy)):
                    worker = busy[connection]  # type: ignore[index]
                    doing = worker.doing
                    assert doing is not None
                    try:
                        ready[doing] = worker.take()
                    except (EOFError, ConnectionResetError):
                        deaths[doing] += 1
                        self._replace(worker, tasks[doing], deaths[doing])
                        waiting.appendleft(doing)
            yield ready.pop(number)

    def _replace(self, worker: _Worker, task: Task, deaths: int) -> None:
        """Put a new worker in the place of one that died, unless the task keeps killing them."""
        worker.close(died=True)
        if deaths >= DEATHS_PER_TASK:
            self._workers.remove(worker)
            raise ClientError(
                f"the worker on client {task.client} in round {task.round} died {deaths} times "
                f"(exit code {worker.process.exitcode}); out of memory? try fewer --workers"
            )
        self._workers[self._workers.index(worker)] = _Worker(self._build, self._dataset)
