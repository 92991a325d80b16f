"""Bundles behind HTTP: each request names a client and how much it may cost, and easy inputs leave early."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from xfed_runtime.serving import ServingError
from xfed_runtime.serving.describing import predict_path, predict_schemas, problems
from xfed_runtime.serving.generations import Generations
from xfed_runtime.serving.guard import ASSETS, PREDICT, Doors, Guard, refused
from xfed_runtime.serving.metrics import CONTENT_TYPE, Metrics
from xfed_runtime.serving.schemas import BundleDescription, Change, Health, Readiness, RequestError
from xfed_runtime.serving.tokens import Access
from xfed_runtime.serving.workers import Task, Workers

log = logging.getLogger("uvicorn.error")

PAGES = Path(__file__).parent / "pages"
BROWSER_RULES = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""What a page may do: nothing but talk to this server."""


def build_app(generations: Generations, doors: Doors) -> Guard:
    """Put bundles behind HTTP; predictions run in threads of their own, so that all else is answered meanwhile."""
    setup = generations.current.setup
    workers = Workers(max(1, (os.cpu_count() or 1) // setup.threads), setup.batch_wait_ms / 1000)
    metrics = Metrics()
    changes = Changes(generations, doors, metrics)

    async def predict(body: bytes, access: Access) -> bytes | RequestError:
        began = time.perf_counter()
        if metrics.in_progress >= setup.limits.requests:
            return RequestError(503, f"the server is busy with {setup.limits.requests} requests; try again")
        metrics.in_progress += 1
        try:
            reply = await asyncio.wrap_future(workers.submit(Task(generations.current, body, access)))
        finally:
            metrics.in_progress -= 1
        if isinstance(reply, RequestError):
            return reply
        metrics.answered(reply.exits, reply.macs, time.perf_counter() - began)
        return reply.content

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        with suppress(ValueError, NotImplementedError, RuntimeError, AttributeError):  # not the main thread, no Unix
            loop.add_signal_handler(signal.SIGHUP, changes.hang_up)
        yield
        await loop.run_in_executor(None, workers.close)

    app = FastAPI(
        title="xfed",
        summary="Early-exit networks of a federation's clients",
        version=version("xfed-runtime"),
        lifespan=living,
        docs_url=None,
        redoc_url=None,
    )

    @app.get("/bundle", responses=problems(401, 403, 421, 422))
    async def bundle(request: Request, client: int | None = None) -> BundleDescription:
        """Say what is served: clients, classes, exits and their costs, inputs, policies."""
        return generations.current.describe(client, request.state.access)

    @app.get("/health")
    async def health() -> Health:
        """Answer that the process is up."""
        return Health()

    @app.get("/ready", responses=problems(503))
    async def ready() -> Readiness:
        """Answer that the bundle is there as it was checked; 503 where it is not."""
        if not generations.current.intact():
            raise RequestError(503, "someone changed the server's own copy of the bundle; reload it")
        return Readiness(bundle=generations.current.id)

    @app.get("/metrics", response_class=PlainTextResponse, responses=problems(401, 421))
    async def prometheus() -> Response:
        """Give the counters: requests, exits taken, MACs, latency."""
        return Response(metrics.text(generations.current, workers.batches), media_type=CONTENT_TYPE)

    @app.post("/admin/reload", responses=problems(401, 403, 409, 421))
    async def reload() -> Change:
        """Read the bundle and the tokens again; the old ones hold until the new ones are checked and loaded."""
        return await changes.reload()

    @app.post("/admin/rollback", responses=problems(401, 403, 409, 421))
    async def rollback() -> Change:
        """Let the bundle before this one answer again."""
        return await changes.rollback()

    for path, file in ASSETS.items():
        app.add_api_route(path, _sender(PAGES / file), include_in_schema=False)

    @app.exception_handler(RequestError)
    async def refuse(_: Request, refusal: RequestError) -> Response:
        return refused(refusal)

    @app.exception_handler(RequestValidationError)
    async def refuse_parameter(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return JSONResponse({"detail": f"{first['loc'][-1]}: {first['msg']}"}, 422)

    described = app.openapi()
    described["paths"] = {PREDICT: predict_path(), **described["paths"]}

    def openapi() -> dict[str, Any]:
        described["components"]["schemas"] |= predict_schemas(generations.current.bundle.inputs)
        return described

    app.openapi = openapi  # type: ignore[method-assign]
    return Guard(app, predict, doors, setup.limits, metrics, generations)


class Changes:
    """Reloads and rollbacks, asked for over HTTP or by a signal: carried out in a thread, counted and logged."""

    def __init__(self, generations: Generations, doors: Doors, metrics: Metrics) -> None:
        self._generations, self._doors, self._metrics = generations, doors, metrics
        self._asked: set[asyncio.Task[None]] = set()

    async def reload(self) -> Change:
        """Read tokens and bundle again; where either cannot be used, both stay as they are."""

        def again() -> bool:
            known = self._doors.tokens.read()
            changed = self._generations.reload()
            self._doors.tokens.take(known)
            return changed

        return await self._carry_out("reload", again)

    async def rollback(self) -> Change:
        """Go back to the bundle before this one."""
        return await self._carry_out("rollback", self._generations.rollback)

    def hang_up(self) -> None:
        """Reload because of SIGHUP, while all goes on."""

        async def reload() -> None:
            with suppress(RequestError):  # the log has it
                await self.reload()

        task = asyncio.get_running_loop().create_task(reload())
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _carry_out(self, kind: str, change: Callable[[], bool]) -> Change:
        try:
            changed = await asyncio.get_running_loop().run_in_executor(None, change)
        except ServingError as error:
            self._metrics.changes[kind, "refused"] += 1
            log.error("%s refused: %s", kind, error)
            raise RequestError(409, str(error)) from None
        self._metrics.changes[kind, "done"] += 1
        current, previous = self._generations.current, self._generations.previous
        log.warning("%s done: bundle %s answers", kind, current.id)
        return Change(bundle=current.id, previous=previous and previous.id, changed=changed)


def _sender(file: Path) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return FileResponse(file, headers=BROWSER_RULES)

    return send
