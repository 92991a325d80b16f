"""Threads that compute: requests that wait are taken together, and those of one kind answered as one batch."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from xfed_runtime.serving.schemas import RequestError
from xfed_runtime.serving.service import Question, Reply, Service
from xfed_runtime.serving.tokens import Access


@dataclass(frozen=True)
class Task:
    """A request to be answered by the bundle that answers when it came in."""

    service: Service
    body: bytes
    access: Access
    reply: Future[Reply | RequestError] = field(default_factory=Future)


class Workers:
    """Threads that share one queue.

    A free thread takes its fair share of what waits; so under load requests are taken together, and a lone one never
    waits. With `wait_seconds`, a thread first waits so long for company, then takes all that is there.
    """

    def __init__(self, threads: int, wait_seconds: float = 0.0) -> None:
        self.batches = 0
        """Batches computed so far."""
        self._counting = Lock()
        self._wait = wait_seconds
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, name=f"predict-{number}", daemon=True) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> Future[Reply | RequestError]:
        """Queue a request; give its reply to come, or why there is none."""
        self._queue.put(task)
        return task.reply

    def close(self) -> None:
        """Finish what was queued, then end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while taken := self._take():
            for batch in _batches([task for task in taken if task.reply.set_running_or_notify_cancel()]):
                with self._counting:
                    self.batches += 1
                _answer(batch)

    def _take(self) -> list[Task]:
        """Give what is to be computed next; nothing at the end."""
        first = self._queue.get()
        if first is None:
            return []
        if self._wait:
            time.sleep(self._wait)
        taken, others = [first], self._queue.qsize()
        share = others if self._wait else -(-(1 + others) // len(self._threads)) - 1
        with suppress(Empty):
            for _ in range(share):
                task = self._queue.get_nowait()
                if task is None:
                    self._queue.put(None)
                    break
                taken.append(task)
        return taken


Asked = tuple[Question, Task]


def _batches(tasks: Sequence[Task]) -> Iterator[list[Asked]]:
    """Read the requests; give those of one kind together, as many as one request may have inputs."""
    kinds: dict[Hashable, list[Asked]] = defaultdict(list)
    for task in tasks:
        try:
            question = task.service.read(task.body, task.access)
        except RequestError as refusal:  # without its frames, which hold the body and are held by the task
            task.reply.set_result(refusal.with_traceback(None))
        except Exception as error:
            task.reply.set_exception(error)
        else:
            kinds[question.kind].append((question, task))
    for same in kinds.values():
        batch: list[Asked] = []
        inputs = 0
        for question, task in same:
            inputs += len(question.inputs)
            if batch and inputs > task.service.setup.limits.inputs:
                yield batch
                batch, inputs = [], len(question.inputs)
            batch.append((question, task))
        yield batch


def _answer(batch: Sequence[Asked]) -> None:
    try:
        replies = batch[0][1].service.answer([question for question, _ in batch])
    except Exception as error:
        for _, task in batch:
            task.reply.set_exception(error)
        return
    for (_, task), reply in zip(batch, replies, strict=True):
        task.reply.set_result(reply)
