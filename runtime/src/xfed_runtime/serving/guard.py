"""What stands before the endpoints: whom the request is for, who asks, and whether its body may come in at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xfed_runtime.serving.generations import Generations
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.metrics import Metrics
from xfed_runtime.serving.schemas import RequestError
from xfed_runtime.serving.tokens import Access, Tokens

log = logging.getLogger("uvicorn.error")

Predict = Callable[[bytes, Access], Awaitable[bytes | RequestError]]
"""From a request's body, and what its sender may do, to the answer's, or to why there is none."""

JSON = "application/json"
PREDICT = "/predict"
PROBES = ("/health", "/ready")
"""For whoever watches the process: by any name, without a token."""
ASSETS = {"/": "index.html", "/docs": "docs.html"} | {f"/{name}": name for name in ("page.js", "docs.js", "style.css")}
"""Files for browsers."""
PAGES = (*ASSETS, "/openapi.json")
"""The same for everyone: without a token."""
ADMIN = ("/admin/reload", "/admin/rollback")
PATHS = (PREDICT, "/bundle", "/metrics", *PROBES, *PAGES, *ADMIN)
FAILED = "the server failed at this request; its log says why"
FREE = 65536
"""Bytes of a body that are let in whatever else is arriving."""


@dataclass(frozen=True)
class Doors:
    """Who is let in: hosts by which the server may be called (None: any), and bearers of tokens."""

    tokens: Tokens
    hosts: Collection[str] | None = None

    def check(self, path: str, headers: Headers) -> Access:
        """Give what the caller may do, or refuse it."""
        if path in PROBES:
            return Access()
        host = _without_port(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            raise RequestError(421, f"this server is not called {host!r}; --allow-host adds a name")
        if path in PAGES:
            return Access()
        access = self.tokens.access(headers.get("authorization"))
        if access is None:
            raise RequestError(401, "a known token is needed: send the header 'Authorization: Bearer TOKEN'")
        if path in ADMIN and not access.admin:
            needed = "this token is not" if self.tokens.required else "start the server with --token-file, and"
            raise RequestError(403, f"only bearers of an admin token may change the bundle; {needed} one")
        return access


class Guard:
    """The server as an ASGI application: predictions go to `predict` once their body is here, all else to `app`."""

    def __init__(
        self, app: ASGIApp, predict: Predict, doors: Doors, limits: Limits, metrics: Metrics, generations: Generations
    ) -> None:
        self._app, self._predict, self._doors, self._limits, self._metrics = app, predict, doors, limits, metrics
        self._generations = generations
        self._arriving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, path = 500, scope["path"]

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"xfed-bundle", self._generations.current.id.encode()))
            await send(message)

        try:
            headers = Headers(scope=scope)
            access = self._doors.check(path, headers)
            if (scope["method"], path) == ("POST", PREDICT):
                content = await self._predict(await self._body(headers, receive), access)
                answer = refused(content) if isinstance(content, RequestError) else Response(content, media_type=JSON)
                await answer(scope, receive, noting)
            else:
                scope["state"]["access"] = access
                await self._app(scope, receive, noting)
        except RequestError as refusal:
            await refused(refusal)(scope, receive, noting)
        except Exception:
            log.exception("%s %s failed", scope["method"], path if path in PATHS else "a path of no use")
            if status == 500:
                await JSONResponse({"detail": FAILED}, 500)(scope, receive, noting)
        finally:
            self._metrics.request_ended(path if path in PATHS else "other", status)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Take in the body; it has so long to come, and no body may take the memory of all."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise RequestError(415, f"content-type is {kind!r}; allowed: {JSON}")
        if int(headers.get("content-length", "0")) > self._limits.body:
            raise RequestError(413, f"the body is larger than {self._limits.body:,} bytes")
        body, counted, late = bytearray(), 0, False
        task = asyncio.current_task()

        def give_up() -> None:
            nonlocal late
            late = True
            if task is not None:
                task.cancel()

        timer = asyncio.get_running_loop().call_later(self._limits.body_seconds, give_up)
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestError(400, "the connection was closed before the body was complete")
                body += message["body"]
                if not message["more_body"]:
                    return bytes(body)
                more = max(0, len(body) - FREE) - counted
                if self._arriving + more > self._limits.arriving:
                    raise RequestError(503, "too much is arriving at once; try again")
                counted += more
                self._arriving += more
        except asyncio.CancelledError:
            if not late:
                raise
            raise RequestError(408, f"the body did not arrive within {self._limits.body_seconds:g} s") from None
        finally:
            timer.cancel()
            self._arriving -= counted


def refused(refusal: RequestError) -> JSONResponse:
    """Say why there is no answer."""
    headers: dict[str, str] = {}
    if refusal.status == 503:
        headers["retry-after"] = "1"
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"detail": str(refusal)}, refusal.status, headers)


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()
