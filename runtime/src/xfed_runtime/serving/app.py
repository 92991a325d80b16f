"""A bundle behind HTTP: each request names a client and how much it may cost, and easy inputs leave early."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from xfed_runtime import Predictions
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.limits import PREDICT, Guard
from xfed_runtime.serving.metrics import CONTENT_TYPE, Metrics
from xfed_runtime.serving.schemas import (
    BundleDescription,
    Health,
    PredictRequest,
    PredictResponse,
    Problem,
    RequestError,
    request_schemas,
)
from xfed_runtime.serving.service import Service


def build_app(service: Service) -> FastAPI:
    """Put a service behind HTTP; predictions run in threads, so that the event loop stays free."""
    workers = max(1, (os.cpu_count() or 1) // service.setup.threads)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="predict")
    metrics = Metrics(len(service.bundle.macs))

    @asynccontextmanager
    async def closing_pool(_: FastAPI) -> AsyncIterator[None]:
        with pool:
            yield

    app = FastAPI(
        title="xfed",
        summary="Early-exit networks of a federation's clients",
        version=version("xfed-runtime"),
        lifespan=closing_pool,
        redoc_url=None,
    )
    app.add_middleware(Guard, limits=service.setup.limits, metrics=metrics)
    problems: dict[int | str, dict[str, Any]] = {
        400: {"model": Problem, "description": "not JSON"},
        408: {"model": Problem, "description": "the body came too slowly"},
        413: {"model": Problem, "description": "the body is too large"},
        415: {"model": Problem, "description": "the body's type is not JSON"},
        422: {"model": Problem, "description": "what is asked for cannot be done"},
        503: {"model": Problem, "description": "too many requests at once"},
    }
    body = {"required": True, "content": {"application/json": {"schema": _reference(PredictRequest)}}}

    @app.post(PREDICT, response_model=PredictResponse, responses=problems, openapi_extra={"requestBody": body})
    async def predict(request: Request) -> Response:
        """Classify images or texts with a client's network, within a policy, a budget or a deadline."""
        began = time.perf_counter()
        given = await request.body()

        def answer() -> tuple[bytes, Predictions]:
            response, found = service.predict(given)
            return response.model_dump_json(by_alias=True).encode(), found

        content, found = await asyncio.get_running_loop().run_in_executor(pool, answer)
        metrics.answered(found.exits.tolist(), int(found.macs.sum()), time.perf_counter() - began)
        return Response(content, media_type="application/json")

    @app.get("/bundle", responses={422: {"model": Problem}})
    def bundle(client: int | None = None) -> BundleDescription:
        """Say what is served: clients, classes, exits and their costs, inputs, policies."""
        return service.describe(client)

    @app.get("/health")
    async def health() -> Health:
        """Answer that the process is up."""
        return Health()

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """Give the counters: requests, exits taken, MACs, latency."""
        return Response(metrics.text(len(service.networks)), media_type=CONTENT_TYPE)

    @app.exception_handler(RequestError)
    async def refuse(_: Request, refusal: RequestError) -> Response:
        return JSONResponse({"detail": str(refusal)}, refusal.status)

    @app.exception_handler(RequestValidationError)
    async def refuse_parameter(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return JSONResponse({"detail": f"{first['loc'][-1]}: {first['msg']}"}, 422)

    @app.exception_handler(Exception)
    async def fail(_: Request, __: Exception) -> Response:
        return JSONResponse({"detail": "the server failed at this request; its log says why"}, 500)

    described = app.openapi()
    described["components"]["schemas"] |= request_schemas(service.bundle.inputs)
    return app


def _reference(model: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ServingError(f"cannot listen on {host} port {port}: {error}") from None


def server_of(app: FastAPI) -> uvicorn.Server:
    """Make the server; `run(sockets=[...])` serves until it is told to stop."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
    )
