"""Servers on loopback that tests talk to, with nothing between them and the socket."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from xfed_runtime import Predictions
from xfed_runtime.serving.app import build_app
from xfed_runtime.serving.generations import Generations
from xfed_runtime.serving.guard import Doors
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.listening import listen, server_of
from xfed_runtime.serving.service import Service
from xfed_runtime.serving.tokens import Tokens

LIMITS = Limits(body=200_000, inputs=20, networks=2)


@dataclass(frozen=True)
class Caller:
    """Sends requests, each on a connection of its own."""

    port: int

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Give status, body and headers of the answer; a body that is an iterator goes in chunks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = body.encode() if isinstance(body, str) else body
            given = {"content-type": kind} if body is not None else {}
            connection.request(method, path, body, {**given, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, text, _ = self.call("GET", path)
        assert status == 200, text
        return json.loads(text)

    def predict(self, **request: Any) -> Any:
        status, text, _ = self.call("POST", "/predict", json.dumps(request))
        assert status == 200, text
        return json.loads(text)

    def refused(self, body: Any, **more: Any) -> tuple[int, str]:
        """Expect a refusal; give its status and sentence."""
        status, text, _ = self.call("POST", "/predict", body, **more)
        problem = json.loads(text)
        assert list(problem) == ["detail"]
        assert isinstance(problem["detail"], str)
        assert "\n" not in problem["detail"]
        assert "Traceback" not in problem["detail"]
        assert len(problem["detail"]) <= 300
        return status, problem["detail"]


@contextmanager
def serving(
    service: Service | Generations,
    tokens: Path | None = None,
    hosts: Collection[str] | None = None,
    tls: tuple[Path, Path] | tuple[()] = (),
) -> Iterator[Caller]:
    """Serve in a thread of this process."""
    generations = service if isinstance(service, Generations) else Generations(lambda: service)
    with listen("127.0.0.1", 0) as opened:
        app = build_app(generations, Doors(Tokens(tokens), hosts))
        server = server_of(app, generations.current.setup.limits, *tls)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            yield Caller(opened.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
            generations.close()
            assert not thread.is_alive()


@dataclass(frozen=True)
class Started:
    """A server in a process of its own, and the line it said when it was ready."""

    process: subprocess.Popen[str]
    caller: Caller
    line: str

    def end(self, by: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
        """Ask it to stop; give what it said after the first line, and its log."""
        self.process.send_signal(by)
        return self.process.communicate(timeout=60)


@contextmanager
def started(*command: str | Path, **environment: str) -> Iterator[Started]:
    """Start a server that listens on a port of its own choice, and kill it in the end."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield Started(process, Caller(int(found[1])), line)
    finally:
        process.kill()
        process.communicate()


def same(answers: list[dict[str, Any]], wanted: Predictions, atol: float = 0.0) -> None:
    assert [a["label"] for a in answers] == wanted.labels.tolist()
    assert [a["class"] for a in answers] == [str(label) for label in wanted.labels]
    assert [a["exit"] for a in answers] == (wanted.exits + 1).tolist()
    assert [a["macs"] for a in answers] == wanted.macs.tolist()
    assert all(a["ms"] > 0 for a in answers)
    got = np.array([a["probabilities"] for a in answers], dtype=np.float32)
    np.testing.assert_allclose(got, wanted.probabilities, rtol=0, atol=atol)
    assert [a["confidence"] for a in answers] == [max(a["probabilities"]) for a in answers]


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def file_of(image: Any, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind)
    return stream.getvalue()
