"""A server under load, and under requests that nobody should send: `python -m benchmarks.serve`.

Trains X-FED on random images in CIFAR's shape for a moment, exports all clients, and starts `xfed serve` as a process
of its own on loopback. First, taking turns, the bare runtime here and one caller there answer the same single inputs:
the caller's median must stay below 3 times the runtime's. Then, for `--seconds` each, 1, 4 and 16 callers at once,
each on a connection that it keeps: clients, policies, budgets and numbers of inputs change with every request, and
more clients are asked for than the server keeps in memory. Every answer must be the runtime's. Last, malformed JSON,
nested brackets, a body of 50 MB (its size declared, and in chunks), a text where an image belongs, NaN pixels, an
unknown client: each must be refused with a 4xx status and one sentence, and the server must answer as before. Exit
code 1 where anything else happens.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from xfed import Experiment, run
from xfed.bundles.bundle import export
from xfed_runtime import Bundle, Policy

SIZES = (1, 1, 1, 8, 32)
"""Inputs of a request."""
CLIENTS, KEPT = 12, 8
RANDOM_IMAGES = Path(__file__).with_name("random_images.py")
HUGE = 50_000_000
CALLERS = (1, 4, 16)
MOST = 3.0
"""Times the bare runtime's median that one caller's may take."""


@dataclass(frozen=True)
class Case:
    """A request and what the runtime says to it."""

    body: str
    labels: list[int]
    exits: list[int]
    probabilities: Any


def make_bundle(folder: Path, width: int) -> Path:
    experiment = Experiment.from_mapping(
        {
            "dataset": "random-images",
            "random-images": {"samples": 1200},
            "clients": CLIENTS,
            "sample": 0.5,
            "rounds": 1,
            "epochs": 1,
            "calibration": 0.2,
            "convnet": {"width": width},
            "plugin": (RANDOM_IMAGES,),
            "out": folder / "run",
        }
    )
    export(run(experiment, progress=False), range(CLIENTS), ["onnx-stages"], folder / "bundle")
    return folder / "bundle"


def raw(images: Any) -> list[dict[str, str]]:
    """Images as a request takes them in the fewest bytes."""
    return [{"raw": base64.b64encode(image.tobytes()).decode()} for image in images]


def make_cases(bundle: Bundle) -> list[Case]:
    """Ask the runtime beforehand, in this process."""
    example = random_images(bundle, 1, max(SIZES))
    inline = Policy("margin", threshold=0.2, answer="running")
    wishes: list[dict[str, Any]] = [{}, {"budget": "100%"}, {"policy": inline}, {"policy": Policy("fixed", exit=1)}]
    cases = []
    runtimes = {client: bundle.runtime(client) for client in bundle.clients}
    for (client, runtime), wish, size in product(runtimes.items(), wishes, sorted(set(SIZES))):
        found = runtime.predict(example[:size], **wish)
        sent = {name: each.to_json() if isinstance(each, Policy) else each for name, each in wish.items()}
        body = json.dumps({"client": client, "inputs": raw(example[:size]), **sent})
        cases.append(Case(body, found.labels.tolist(), (found.exits + 1).tolist(), found.probabilities))
    return cases


def random_images(bundle: Bundle, seed: int, count: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, *bundle.inputs.example().shape[1:]), dtype=np.uint8)


@contextmanager
def server(bundle: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the command as a user would; end it with Ctrl-C."""
    command = [sys.executable, "-m", "xfed", "serve", str(bundle), "--port", "0", "--networks", str(KEPT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if not found:
            raise SystemExit(f"benchmarks.serve: the server did not start: {line}")
        yield process, int(found[1])
        process.send_signal(signal.SIGINT)
        process.wait(30)
    finally:
        process.kill()


def ask(connection: http.client.HTTPConnection, body: Any, path: str = "/predict") -> tuple[int, Any]:
    connection.request("GET" if body is None else "POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class Line:
    """A connection that is kept, with nothing between the caller and the socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def ask(self, body: bytes) -> tuple[int, bytes]:
        """Send a request; give the answer's status and body."""
        head = (
            b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        )
        self._socket.sendall(head % len(body) + body)
        status = int(self._stream.readline().split()[1])
        length = 0
        while (line := self._stream.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, self._stream.read(length)

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()


def one_caller(port: int, bundle: Bundle, turns: int) -> tuple[float, float]:
    """Take turns: the bare runtime here, the server there, one input each; give both medians (ms)."""
    runtime, last = bundle.runtime(0), Policy("fixed", exit=len(bundle.macs))
    images = random_images(bundle, 2, turns)
    line = Line(port)
    times = np.zeros((2, turns))
    for turn in range(-20, turns):
        one = images[turn : turn + 1] if turn >= 0 else images[:1]
        body = json.dumps({"client": 0, "inputs": raw(one), "policy": last.to_json()}).encode()
        began = time.perf_counter()
        found = runtime.predict(one, last)
        between = time.perf_counter()
        status, content = line.ask(body)
        ended = time.perf_counter()
        assert status == 200, content
        assert json.loads(content)["answers"][0]["label"] == found.labels[0]
        if turn >= 0:
            times[:, turn] = between - began, ended - between
    line.close()
    bare, asked = 1000 * np.median(times, axis=1)
    return float(bare), float(asked)


def call(port: int, cases: Sequence[Case], number: int, until: float) -> tuple[list[float], int, list[str]]:
    """Call until the time is up; give the latencies (s), the number of inputs and what went wrong."""
    order = np.random.default_rng(number)
    by_size = {size: [case for case in cases if len(case.labels) == size] for size in set(SIZES)}
    line = Line(port)
    latencies: list[float] = []
    inputs, wrong = 0, []
    while time.perf_counter() < until:
        fitting = by_size[int(order.choice(SIZES))]
        case = fitting[order.integers(len(fitting))]
        began = time.perf_counter()
        try:
            status, content = line.ask(case.body.encode())
        except (OSError, ValueError, IndexError) as error:
            wrong.append(repr(error))
            line.close()
            line = Line(port)
            continue
        latencies.append(time.perf_counter() - began)
        inputs += len(case.labels)
        if status != 200:
            wrong.append(f"{status}: {content.decode()}")
        elif not agrees(case, json.loads(content)["answers"]):
            wrong.append("an answer that is not the runtime's")
    line.close()
    return latencies, inputs, wrong


def load(port: int, cases: Sequence[Case], callers: int, seconds: float) -> list[str]:
    """Let so many callers call at once; print how long it took them, give what went wrong."""
    with ThreadPoolExecutor(callers) as pool:
        began = time.perf_counter()
        jobs = [pool.submit(call, port, cases, number, began + seconds) for number in range(callers)]
        results = [job.result() for job in jobs]
        took = time.perf_counter() - began
    latencies = 1000 * np.concatenate([latencies for latencies, _, _ in results])
    inputs, wrong = sum(result[1] for result in results), [each for result in results for each in result[2]]
    p50, p99 = np.percentile(latencies, (50, 99)) if len(latencies) else (np.nan, np.nan)
    print(
        f"{callers:2} callers, {took:.0f} s: {len(latencies) / took:,.0f} requests/s, {inputs / took:,.0f} inputs/s, "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(wrong)} errors in {len(latencies):,} requests",
        flush=True,
    )
    return wrong if len(latencies) else ["no request was answered"]


def agrees(case: Case, answers: Sequence[dict[str, Any]]) -> bool:
    return (
        [each["label"] for each in answers] == case.labels
        and [each["exit"] for each in answers] == case.exits
        and np.allclose([each["probabilities"] for each in answers], case.probabilities, rtol=0, atol=1e-6)
    )


def abuse(port: int, case: Case) -> list[str]:
    """Send what must be refused; give what was not."""
    request = json.loads(case.body)
    nan = {**request, "inputs": [[[[float("nan")] * 32] * 32] * 3]}
    bodies: dict[str, Any] = {
        "malformed JSON": case.body[:-2],
        "nested brackets": b"[" * 4_800_000 + b"]" * 4_800_000,
        "a 50 MB body": b" " * HUGE,
        "a 50 MB body in chunks": (b" " * 1_000_000 for _ in range(HUGE // 1_000_000)),
        "a text for an image": json.dumps({**request, "inputs": ["a photo of a seven"]}),
        "NaN pixels": json.dumps(nan),
        "an unknown client": json.dumps({**request, "client": CLIENTS}),
    }
    wrong = []
    for name, body in bodies.items():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            status, answer = ask(connection, body)
            sentence = answer.get("detail")
            fine = 400 <= status < 500 and isinstance(sentence, str) and "\n" not in sentence
            print(f"  {name}: {status} {sentence}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            fine = False
            print(f"  {name}: no answer ({error!r})")
        connection.close()
        wrong += [] if fine else [f"{name} was not refused with a sentence"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    status, answer = ask(connection, case.body)
    healthy = ask(connection, None, "/health") == (200, {"status": "ok"})
    connection.close()
    return wrong if healthy and status == 200 and agrees(case, answer["answers"]) else [*wrong, "no answer afterwards"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="for each number of callers")
    parser.add_argument("--turns", type=int, default=1000, help="answers of the bare runtime and of one caller")
    parser.add_argument("--width", type=int, default=128, help="channels of the network; 128 is xfed's own default")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = make_bundle(Path(folder), options.width)
        bundle = Bundle.open(path)
        cases = make_cases(bundle)
        with server(path) as (process, port):
            bare, asked = one_caller(port, bundle, options.turns)
            slow = asked >= MOST * bare
            print(
                f"one input: the bare runtime {bare:.2f} ms, one caller {asked:.2f} ms: {asked / bare:.2f} times "
                f"(limit {MOST:g})",
                flush=True,
            )
            print(f"{CLIENTS} clients, {KEPT} kept in memory")
            faults = [each for callers in CALLERS for each in load(port, cases, callers, options.seconds)]
            faults += abuse(port, cases[0])
            if process.poll() is not None:
                faults.append("the server ended")
    if process.returncode != 0:
        faults.append(f"the server ended with code {process.returncode}")
    for each in [*faults[:5], *(["one caller waits too long"] if slow else [])]:
        print(f"  {each}")
    return 1 if faults or slow else 0


if __name__ == "__main__":
    sys.exit(main())
