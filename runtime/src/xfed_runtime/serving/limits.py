"""What stands before the endpoints: counts every request, and lets only bodies of the right type and size through."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xfed_runtime.serving.metrics import Metrics
from xfed_runtime.serving.schemas import RequestError

PREDICT = "/predict"
PATHS = (PREDICT, "/bundle", "/health", "/metrics", "/docs", "/openapi.json")


@dataclass(frozen=True)
class Limits:
    """What a server takes on."""

    body: int = 10_000_000
    """Bytes of a request."""
    inputs: int = 256
    """Inputs of a request."""
    requests: int = 32
    """Prediction requests at once, waiting ones included; more are told to come back."""
    body_seconds: float = 30.0
    """Time for a body to arrive."""
    networks: int = 8
    """Clients' networks in memory."""


class Guard:
    """ASGI middleware; the whole body of a prediction is here, and small enough, before anything reads it."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if (scope["method"], scope["path"]) == ("POST", PREDICT):
                await self._predict(scope, receive, noting)
            else:
                await self._app(scope, receive, noting)
        finally:
            self._metrics.request_ended(scope["path"] if scope["path"] in PATHS else "other", status)

    async def _predict(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._metrics.in_progress >= self._limits.requests:
            busy = {"detail": f"the server is busy with {self._limits.requests} requests; try again"}
            await JSONResponse(busy, 503, headers={"retry-after": "1"})(scope, receive, send)
            return
        self._metrics.in_progress += 1
        try:
            body: Message | None = await self._body(Headers(scope=scope), receive)

            async def replay() -> Message:
                nonlocal body
                message, body = body, None
                return message if message is not None else await receive()

            await self._app(scope, replay, send)
        except RequestError as refusal:
            await JSONResponse({"detail": str(refusal)}, refusal.status)(scope, receive, send)
        finally:
            self._metrics.in_progress -= 1

    async def _body(self, headers: Headers, receive: Receive) -> Message:
        """Take in the body as one message."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"content-type is {kind!r}; allowed: application/json")
        too_large = RequestError(413, f"the body is larger than {self._limits.body:,} bytes")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limits.body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(400, "the connection was closed before the body was complete")
                    body += message.get("body", b"")
                    if len(body) > self._limits.body:
                        raise too_large
                    if not message.get("more_body", False):
                        return {"type": "http.request", "body": bytes(body), "more_body": False}
        except TimeoutError:
            seconds = f"{self._limits.body_seconds:g} s"
            raise RequestError(408, f"the body did not arrive within {seconds}") from None
