"""Sockets and connections: answers leave at once, nobody keeps a connection waiting for ever, and there is an end to
how many there are."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from xfed_runtime.serving import ServingError
from xfed_runtime.serving.limits import Limits

log = logging.getLogger("uvicorn.error")
faults = log.getChild("connections")
"""Of connections only the server's own faults are logged: otherwise anyone could fill the log with nonsense."""

OWN_DESCRIPTORS = 64
"""Descriptors kept back from connections: the bundle's files, the log, the event loop."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one.

    It is made with TCP's protocol number: only then does asyncio switch off Nagle's algorithm, which holds every
    answer back until the caller's delayed acknowledgement, 40 ms later.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(128)
    except (OSError, OverflowError) as error:
        opened.close()
        raise ServingError(f"cannot listen on {host} port {port}: {error}") from None
    return opened


def most_connections(limits: Limits) -> int:
    """Give how many connections may be open, so that descriptors are left for the server itself."""
    try:
        import resource
    except ModuleNotFoundError:  # not a Unix: sockets are not counted among files
        return limits.connections
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits.connections
    return max(8, min(limits.connections, descriptors - OWN_DESCRIPTORS))


class OneWrite:
    """A transport that sends what is written in one turn of the event loop at once: headers and body together."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send soon."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what there is, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(H11Protocol):
    """A connection with deadlines: complete headers, and answers that are taken, within a time each.

    `waiting` holds the connections without a complete request, the longest waiting first. A body in chunks is refused
    before any of it is parsed: chunks of one byte would keep the whole server busy.
    """

    def __init__(self, *arguments: Any, limits: Limits, waiting: dict[Connection, None]) -> None:
        super().__init__(*arguments)
        self.logger = faults
        self._limits, self._waiting = limits, waiting
        self._headers_due: asyncio.TimerHandle | None = None
        self._answer_due: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect headers from now on."""
        super().connection_made(transport)
        self.transport = OneWrite(transport, self.loop)  # type: ignore[assignment]
        self._note()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; only a complete request, not a few more bytes of one, ends the wait."""
        if not self._refused:
            super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Expect the next request's headers."""
        super().on_response_complete()
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._end_wait()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Give whoever does not take the answer some time to do so."""
        super().pause_writing()
        self._answer_due = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the answer is being taken."""
        super().resume_writing()
        if self._answer_due is not None:
            self._answer_due.cancel()
            self._answer_due = None

    def _note(self) -> None:
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy or self.transport.is_closing():
            self._end_wait()
        elif self._headers_due is None:
            self._headers_due = self.loop.call_later(self._limits.headers_seconds, self.transport.abort)
            self._waiting[self] = None

    def _end_wait(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None
        self._waiting.pop(self, None)

    def _should_upgrade(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Refuse a body of unknown length; uvicorn asks before it parses any of it."""
        content = b'{"detail":"the body comes in chunks; send it with its content-length"}'
        headers = [("content-type", "application/json"), ("content-length", str(len(content)))]
        for part in (
            h11.Response(status_code=411, headers=headers, reason=b"Length Required"),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(part) or b"")
        self._refused = True  # what else comes is dropped until the deadline; closing now could lose the answer


class Server(uvicorn.Server):
    """uvicorn's server with an accept loop that counts connections and stays quiet when descriptors run out."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits, self._most = limits, most_connections(limits)
        self._waiting: dict[Connection, None] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._beginning: dict[asyncio.Task[None], None] = {}
        self._complained = -60.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections."""
        await super().startup(sockets=[])
        if self.started:
            self._loops = [asyncio.create_task(self._accept(each)) for each in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, then end in order."""
        for task in (*self._loops, *self._beginning):
            task.cancel()
        await asyncio.gather(*self._loops, *self._beginning, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:  # no descriptor is left, here or on the whole machine
                self._complain(error)
                await asyncio.sleep(1)
                continue
            if self._make_room():
                task = loop.create_task(self._begin(accepted))
                self._beginning[task] = None
                task.add_done_callback(lambda task: self._beginning.pop(task, None))
            else:
                accepted.close()
            await asyncio.sleep(0)

    def _make_room(self) -> bool:
        """Where all places are taken, close whoever waits longest: in a TLS handshake, or else without a request."""
        if len(self.server_state.connections) + len(self._beginning) < self._most:
            return True
        if self.config.ssl and self._beginning:
            shaking = next(iter(self._beginning))
            shaking.cancel()
            del self._beginning[shaking]
            return True
        if self._waiting:
            idle = next(iter(self._waiting))
            idle.transport.abort()
            del self._waiting[idle]
            return True
        return False

    async def _begin(self, accepted: socket.socket) -> None:
        """Hand a connection over; with TLS, once its handshake is done."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(
                    self.config, self.server_state, self.lifespan.state, limits=self._limits, waiting=self._waiting
                ),
                accepted,
                ssl=self.config.ssl,
                ssl_handshake_timeout=self._limits.headers_seconds if self.config.ssl else None,
            )
        except (OSError, ssl.SSLError):  # the caller hung up, or spoke no TLS
            accepted.close()

    def _complain(self, error: OSError) -> None:
        """Tell once a minute."""
        if time.monotonic() - self._complained >= 60:
            self._complained = time.monotonic()
            log.error("cannot accept connections: %s; trying again every second", error)


def server_of(app: Any, limits: Limits, certificate: Path | None = None, key: Path | None = None) -> Server:
    """Make the server; `run(sockets=[...])` serves until it is told to stop."""
    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, int(limits.headers_seconds)),
        timeout_graceful_shutdown=5,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    faults.setLevel(logging.ERROR)  # not sooner: uvicorn has just set up all logging anew
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ServingError(f"certificate {str(certificate)!r} with key {str(key)!r} cannot be used: {error}") from None
    return Server(config, limits)
