"""Requests computed together."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.serving.served import serving
from xfed_runtime import Bundle, Device, Policy
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.schemas import RequestError
from xfed_runtime.serving.service import Question, Reply, Service, Setup
from xfed_runtime.serving.tokens import Access
from xfed_runtime.serving.workers import Task, Workers


class Watched(Service):
    """Notes the batches that it is asked for, and can be held up."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.began = threading.Event()

    def answer(self, questions: Sequence[Question]) -> list[Reply | RequestError]:
        self.batches.append([len(question.inputs) for question in questions])
        self.began.set()
        assert self.go.wait(30)
        return super().answer(questions)


@contextmanager
def workers(threads: int, wait: float = 0.0) -> Iterator[Workers]:
    made = Workers(threads, wait)
    try:
        yield made
    finally:
        made.close()


def body(pixels: Any, client: int = 0, policy: Policy | None = None, **more: Any) -> bytes:
    wish = {} if policy is None else {"policy": policy.to_json()}
    return json.dumps({"client": client, "inputs": pixels.tolist(), **wish, **more}).encode()


def reply(future: Future[Reply | RequestError]) -> Reply:
    found = future.result(30)
    assert isinstance(found, Reply)
    return found


def test_those_who_wait_are_computed_together_and_get_their_own_answers(
    bundle: Bundle, pixels: Any, halving: dict[int, Policy]
) -> None:
    service = Watched(bundle.root, Setup(limits=Limits(inputs=12)))
    with workers(1) as threads:
        first = threads.submit(Task(service, body(pixels[:1]), Access()))
        assert service.began.wait(30)
        bodies = [
            body(pixels[:3], policy=halving[0]),
            body(pixels[3:4], client=3, policy=halving[3]),
            body(pixels[4:9], policy=halving[0]),
            body(pixels[9:12], policy=Policy("fixed", exit=2)),
            b"{",
            body(pixels[5:12], policy=halving[0]),
            body(pixels[:2], policy=halving[0]),
        ]
        waiting = [threads.submit(Task(service, each, Access())) for each in bodies]
        service.go.set()
        assert reply(first).exits
        refusal = waiting[4].result(30)
        assert isinstance(refusal, RequestError)
        assert "not JSON" in str(refusal)
        for future, given in zip(waiting, bodies, strict=True):
            if given == b"{":
                continue
            request, answer = json.loads(given), json.loads(reply(future).content)
            wanted = bundle.runtime(request["client"]).predict(
                np.array(request["inputs"]), Policy.from_json(request["policy"])
            )
            assert [each["exit"] for each in answer["answers"]] == (wanted.exits + 1).tolist()
            got = [each["probabilities"] for each in answer["answers"]]
            np.testing.assert_allclose(got, wanted.probabilities, rtol=0, atol=1e-6)
            assert answer["client"] == request["client"]
            assert reply(future).macs == wanted.macs.sum()
        assert service.batches == [[1], [3, 5], [7, 2], [1], [3]]
        assert threads.batches == 5


def test_deadlines_go_alone(bundle: Bundle, pixels: Any) -> None:
    device = Device("d", "r", 1, (1.0, 1e6, 2e6), (1.0, 1e6, 2e6), 1)
    service = Watched(bundle.root, Setup(device=device))
    with workers(1) as threads:
        tasks = [Task(service, body(pixels[:1], deadline_ms=5e4), Access()) for _ in range(3)]
        waiting = [threads.submit(task) for task in tasks]
        service.go.set()
        assert [reply(future).exits for future in waiting] == [[0]] * 3
    assert service.batches == [[1], [1], [1]]


def test_one_that_waits_for_company(bundle: Bundle, pixels: Any) -> None:
    service = Watched(bundle.root, Setup(batch_wait_ms=500))
    service.go.set()
    with serving(service) as caller, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: caller.predict(client=0, inputs=pixels[:2].tolist()), range(4)))
    assert sum(map(len, service.batches)) == 4
    assert len(service.batches) < 4


def test_threads_share_what_waits(bundle: Bundle, pixels: Any) -> None:
    service = Watched(bundle.root, Setup())
    with workers(2) as threads:
        busy = [threads.submit(Task(service, body(pixels[:1]), Access())) for _ in range(2)]
        while len(service.batches) < 2:
            pass
        waiting = [threads.submit(Task(service, body(pixels[:1]), Access())) for _ in range(8)]
        service.go.set()
        for future in (*busy, *waiting):
            future.result(30)
    assert max(map(len, service.batches)) <= 4, "half of those who wait, not all"
    assert sum(map(len, service.batches)) == 10


class Broken(Service):
    """Fails where nobody expects it."""

    def answer(self, questions: Sequence[Question]) -> list[Reply | RequestError]:
        raise RuntimeError("broken")


def test_a_failure_ends_no_thread(bundle: Bundle, pixels: Any) -> None:
    broken = Broken(bundle.root, Setup())
    with workers(1) as threads:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broken"):
                threads.submit(Task(broken, body(pixels[:1]), Access())).result(30)


def test_a_refused_body_is_not_kept(bundle: Bundle) -> None:
    """No cycle holds it until the garbage collector comes by: that goes by the number of things, not by their size."""
    service = Service(bundle.root, Setup())
    gc.disable()
    try:
        with workers(1) as threads:
            task = Task(service, b"[" * 100_000, Access())
            assert isinstance(threads.submit(task).result(30), RequestError)
            gone = weakref.ref(task)
            del task
        assert gone() is None
    finally:
        gc.enable()
