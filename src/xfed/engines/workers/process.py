"""A worker process: what it does, how it is started and ended, and the pipe to it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext

import torch
import torch.multiprocessing as multiprocessing
from threadpoolctl import threadpool_limits

from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.engines.workers.allocator import keep_freed_memory, return_freed_memory
from xfed.engines.workers.mailbox import Inbox, Outbox
from xfed.errors import ClientError, InputError
from xfed.federation.carrying import keep_states, with_states
from xfed.federation.host import Host, simulated
from xfed.protocol.engine import Job
from xfed.protocol.words import Briefing, Evaluated, EvaluateTask, Failed, Task, Trained, TrainTask

START_ATTEMPTS = 3
PRELOADED = ["xfed.algorithms.xfed", "xfed.models.convnet", "xfed.data.sources.digits"]


def work(dataset: Dataset, partition: Partition, device: str, connection: Connection) -> None:
    """Answer letters until the other end is gone: the main function of a worker process. The first is the briefing."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the main process, which ends this one
        signal.signal(number, signal.SIG_IGN)
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


def _ready_fork_server(context: SpawnContext | ForkServerContext) -> None:
    """Start the fork server, where it does not run yet, deaf to Ctrl-C: while it imports, it would show a traceback.

    The tracker of shared memory comes first, since its own start lets the signal in again.
    """
    if not isinstance(context, ForkServerContext):
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
class Worker:
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
        self._at_exit: util.Finalize | None = None
        self._prepare()

    def _prepare(self) -> None:
        context = _context()
        self.connection, self._theirs = context.Pipe()
        arguments = (self.job.dataset, self.job.partition, self.device, self._theirs)
        self.process = context.Process(target=work, args=arguments, daemon=True)

    def start(self) -> None:
        """Start the process and brief it. Whoever calls this knows the worker already, and closes it if that fails."""
        for _ in range(START_ATTEMPTS):
            try:
                self._start()
                break
            except (EOFError, OSError) as error:  # the fork server was killed; the next attempt starts another
                reason = error
                time.sleep(0.1)
                self._prepare()
        else:
            if "path too long" in str(reason):
                raise ClientError(
                    f"no worker process can be started: temporary folder {tempfile.gettempdir()!r} has too long a path "
                    "for a socket; set TMPDIR to a shorter one"
                )
            raise ClientError(f"no worker process can be started ({reason!r}); is there memory for one more?")
        self._at_exit = util.Finalize(self, _kill, (self.process.pid,), exitpriority=0)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(self.introduction.put([self.job.briefing]))

    def _start(self) -> None:
        try:
            with _without_main():
                _ready_fork_server(_context())
                self.process.start()
        except BaseException:
            self.connection.close()  # a worker that comes to life after all then ends by itself
            raise
        finally:
            self._theirs.close()

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

    def leave(self) -> None:
        """Let the process end: by itself if it is idle; at once if it is doing what nobody waits for any more.

        One or the other: one that has just begun to free its memory would be killed with that half done.
        """
        if self.doing:
            self.kill()
        else:
            self.connection.close()

    def kill(self) -> None:
        """End the process at once."""
        assert self.process.pid is not None
        _kill(self.process.pid)

    def close(self, seconds: float = 0.0) -> None:
        """Wait for the end of the process, no longer than that, and free its memory; it may never have started."""
        if self._at_exit is not None:
            self._at_exit.cancel()
        died = bool(self.doing)
        if self.process.pid is not None:
            self.process.join(timeout=seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            died = True
        if died:
            with suppress(EOFError, OSError):  # the memory of an answer that nobody took is freed here too
                while self.connection.poll():
                    self.inbox.read(self.connection.recv_bytes())
        for end in (self.connection, self._theirs):
            end.close()
        self.introduction.close()
        self.outbox.close()
        try:
            self.inbox.close(unlink=died)
        except FileNotFoundError:
            self.inbox.close()


def _kill(pid: int) -> None:
    """Kill a worker by its number: one whose fork server is gone counts as dead here while it lives on."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
