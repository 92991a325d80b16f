"""Callers that want to keep the server from its work, while others go on being answered."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from tests.serving.served import Caller, serving, started
from xfed_runtime import Bundle
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.listening import server_of
from xfed_runtime.serving.service import Service, Setup

PATIENCE = 5.0
"""Seconds within which others must be answered, on a machine that is busy with other tests too."""
QUESTION = json.dumps({"client": 0, "inputs": [np.zeros((1, 8, 8)).tolist()]})
HEAD = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def is_closed(connection: socket.socket, within: float) -> bool:
    """Tell whether the server closes a connection, whatever it says before."""
    until = time.monotonic() + within
    while (left := until - time.monotonic()) > 0:
        if not select.select([connection], [], [], left)[0]:
            return False
        try:
            if not connection.recv(65536):
                return True
        except ConnectionError:
            return True
    return False


@contextmanager
def at_once(attack: Callable[[], None], threads: int) -> Iterator[list[int]]:
    """Attack from many threads until the body of the with statement is done; give what counts the attacks."""
    over, counts = threading.Event(), [0] * threads

    def go_on(number: int) -> None:
        while not over.is_set():
            attack()
            counts[number] += 1

    started = [threading.Thread(target=go_on, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in started:
            thread.join(60)


NESTED = {
    "nested": b'{"inputs":' + b"[" * 5_000_000 + b"]" * 4_700_000 + b"}",
    "empty lists": b'{"client": 0, "inputs": [' + b"[]," * 3_200_000 + b"0]}",
    "values": b'{"client": 0, "inputs": [' + b"0," * 4_800_000 + b"0]}",
    "strings": b'{"client": 0, "inputs": [' + b'"",' * 3_200_000 + b"0]}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NESTED)
def test_bodies_that_are_dear_to_parse_hold_nobody_up(bundle: Bundle, name: str) -> None:
    statuses: set[int | str] = set()
    with serving(Service(bundle.root, Setup())) as caller:

        def attack() -> None:
            try:
                statuses.add(caller.refused(NESTED[name])[0])
            except OSError as error:
                statuses.add(repr(error))

        with at_once(attack, 4) as attacks:
            slowest = 0.0
            while sum(attacks) < 12:
                for path, body in (("/health", None), ("/ready", None), ("/predict", QUESTION)):
                    began = time.monotonic()
                    status, text, _ = caller.call("POST" if body else "GET", path, body)
                    slowest = max(slowest, time.monotonic() - began)
                    assert status == 200, text
    assert slowest < PATIENCE
    assert statuses <= {400, 413}


def test_slow_bodies_take_no_place_from_others(bundle: Bundle) -> None:
    limits = Limits(requests=2, body_seconds=20)
    with serving(Service(bundle.root, Setup(limits=limits))) as caller, ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(connect(caller.port))
            connection.sendall(HEAD % 1000 + b"{")
        assert caller.call("POST", "/predict", QUESTION)[0] == 200
        assert caller.get("/health") == {"status": "ok"}
        assert "xfed_requests_in_progress 0\n" in caller.call("GET", "/metrics")[1]


def test_many_large_bodies_may_not_fill_the_memory(bundle: Bundle) -> None:
    limits = Limits(body=300_000, arriving=250_000)
    with serving(Service(bundle.root, Setup(limits=limits))) as caller, ExitStack() as stack:
        first, second = (stack.enter_context(connect(caller.port)) for _ in range(2))
        for connection in (first, second):
            connection.sendall(HEAD % 300_000 + b" " * 250_000)
        ready, _, _ = select.select([first, second], [], [], 20)
        assert len(ready) == 1, "one of them goes on arriving"
        assert ready[0].recv(1000).startswith(b"HTTP/1.1 503")
        assert caller.call("POST", "/predict", QUESTION)[0] == 200, "small ones are let in"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /health HT",
        b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n{",
    ],
    ids=["nothing", "half a header", "a second one", "a body nobody wants"],
)
def test_half_sent_requests_are_closed_although_bytes_keep_dripping(bundle: Bundle, sent: bytes) -> None:
    with (
        serving(Service(bundle.root, Setup(limits=Limits(headers_seconds=0.5)))) as caller,
        connect(caller.port) as slow,
    ):
        slow.sendall(sent)
        over = threading.Event()

        def drip() -> None:
            try:
                while sent and not over.wait(0.1):
                    slow.sendall(b"a")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert is_closed(slow, within=15)
        finally:
            over.set()
            dripping.join()


def test_who_waits_longest_without_a_request_makes_room(bundle: Bundle) -> None:
    limits = Limits(connections=8, headers_seconds=60)
    with serving(Service(bundle.root, Setup(limits=limits))) as caller, ExitStack() as stack:
        idle = [stack.enter_context(connect(caller.port)) for _ in range(12)]
        for _ in range(3):
            assert caller.call("POST", "/predict", QUESTION)[0] == 200
        assert is_closed(idle[0], within=15)
        idle[-1].sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert idle[-1].recv(100).startswith(b"HTTP/1.1 200")


def test_bodies_in_chunks_are_not_even_parsed(caller: Caller) -> None:
    status, text, _ = caller.call("POST", "/predict", iter([QUESTION.encode()]))
    assert status == 411
    assert json.loads(text) == {"detail": "the body comes in chunks; send it with its content-length"}
    with connect(caller.port) as connection:
        connection.sendall(HEAD.replace(b"content-length: %d", b"transfer-encoding: chunked") + b"1\r\n \r\n" * 200_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 411")


def test_nonsense_fills_no_log(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Service(bundle.root, Setup())) as caller:
        for sent in (
            b"nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        ):
            with connect(caller.port) as connection:
                connection.sendall(sent)
                assert connection.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.1 200"))
    assert capfd.readouterr().err == ""


def test_an_answer_that_nobody_takes_is_given_up(bundle: Bundle) -> None:
    limits = Limits(answer_seconds=0.5, headers_seconds=60)
    with serving(Service(bundle.root, Setup(limits=limits))) as caller:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(2)
        with connection:
            connection.connect(("127.0.0.1", caller.port))
            hung_up, until = False, time.monotonic() + 30
            while not hung_up and time.monotonic() < until:
                try:
                    connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
                except TimeoutError:
                    continue
                except OSError:
                    hung_up = True
            assert hung_up
        assert caller.get("/health") == {"status": "ok"}


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from xfed_runtime.serving.command import main
sys.exit(main([sys.argv[1], "--port", "0"]))
"""


@pytest.mark.slow
def test_more_connections_than_descriptors(bundle: Bundle) -> None:
    with started(sys.executable, "-c", FEW_DESCRIPTORS, bundle.root) as server, ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connect(server.caller.port))
        time.sleep(2)
        for _ in range(3):
            assert server.caller.call("POST", "/predict", QUESTION)[0] == 200
        _, log = server.end()
    assert len(log.splitlines()) <= 3, log[:2000]


def test_running_out_of_descriptors_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def run() -> None:
        here = asyncio.get_running_loop()

        async def no_app(scope: Any, receive: Any, send: Any) -> None: ...

        async def no_descriptor(_: Any) -> Any:
            raise OSError(24, "Too many open files")

        async def sleep(seconds: float) -> None:
            if asyncio.get_running_loop() is not here:  # another server's, in a thread of this process
                return await real_sleep(seconds)
            slept.append(seconds)
            if len(slept) == 50:
                raise asyncio.CancelledError

        monkeypatch.setattr(here, "sock_accept", no_descriptor)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        with socket.socket() as listening, pytest.raises(asyncio.CancelledError):
            await server_of(no_app, Limits())._accept(listening)

    asyncio.run(run())
    assert slept == [1] * 50, "it waits before it tries again"
    assert capfd.readouterr().err.count("cannot accept connections: [Errno 24] Too many open files") == 1
