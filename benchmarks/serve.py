"""A server under load, and under requests that nobody should send: `python -m benchmarks.serve`.

Trains X-FED on the embedded digits for a moment, exports all clients, and starts `xfed serve` as a process of its own
on loopback. Then, for `--seconds`, four callers at once, each on a connection that it keeps: clients, policies,
budgets and numbers of inputs change with every request, and more clients are asked for than the server keeps in
memory. Every answer must be the runtime's. Last, malformed JSON, a body of 50 MB (its size declared, and in chunks),
a text where an image belongs, NaN pixels, an unknown client: each must be refused with a 4xx status and one sentence,
and the server must answer as before. Exit code 1 where anything else happens.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
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
HUGE = 50_000_000


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
            "clients": CLIENTS,
            "sample": 0.5,
            "rounds": 4,
            "calibration": 0.2,
            "convnet": {"width": width},
            "out": folder / "run",
        }
    )
    export(run(experiment, progress=False), range(CLIENTS), ["onnx-stages"], folder / "bundle")
    return folder / "bundle"


def make_cases(bundle: Bundle) -> list[Case]:
    """Ask the runtime beforehand, in this process."""
    example = np.random.default_rng(1).integers(0, 17, (max(SIZES), *bundle.inputs.example().shape[1:]))
    inline = Policy("margin", threshold=0.2, answer="running")
    wishes: list[dict[str, Any]] = [{}, {"budget": "100%"}, {"policy": inline}, {"policy": Policy("fixed", exit=1)}]
    cases = []
    runtimes = {client: bundle.runtime(client) for client in bundle.clients}
    for (client, runtime), wish, size in product(runtimes.items(), wishes, sorted(set(SIZES))):
        inputs = example[:size]
        found = runtime.predict(inputs, **wish)
        sent = {name: each.to_json() if isinstance(each, Policy) else each for name, each in wish.items()}
        body = json.dumps({"client": client, "inputs": inputs.tolist(), **sent})
        cases.append(Case(body, found.labels.tolist(), (found.exits + 1).tolist(), found.probabilities))
    return cases


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


def call(port: int, cases: Sequence[Case], number: int, until: float) -> tuple[list[float], int, list[str]]:
    """Call until the time is up; give the latencies (s), the number of inputs and what went wrong."""
    order = np.random.default_rng(number)
    by_size = {size: [case for case in cases if len(case.labels) == size] for size in set(SIZES)}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    latencies: list[float] = []
    inputs, wrong = 0, []
    while time.perf_counter() < until:
        fitting = by_size[int(order.choice(SIZES))]
        case = fitting[order.integers(len(fitting))]
        began = time.perf_counter()
        try:
            status, answer = ask(connection, case.body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            wrong.append(repr(error))
            connection.close()
            continue
        latencies.append(time.perf_counter() - began)
        inputs += len(case.labels)
        if status != 200:
            wrong.append(f"{status}: {answer}")
        elif not agrees(case, answer["answers"]):
            wrong.append("an answer that is not the runtime's")
    connection.close()
    return latencies, inputs, wrong


def agrees(case: Case, answers: Sequence[dict[str, Any]]) -> bool:
    return (
        [each["label"] for each in answers] == case.labels
        and [each["exit"] for each in answers] == case.exits
        and np.allclose([each["probabilities"] for each in answers], case.probabilities, rtol=0, atol=1e-6)
    )


def abuse(port: int, case: Case) -> list[str]:
    """Send what must be refused; give what was not."""
    request = json.loads(case.body)
    first = json.dumps(request["inputs"][0])
    nan = re.sub(r"\d+", "NaN", first, count=1)
    bodies: dict[str, Any] = {
        "malformed JSON": case.body[:-2],
        "a 50 MB body": b" " * HUGE,
        "a 50 MB body in chunks": (b" " * 1_000_000 for _ in range(HUGE // 1_000_000)),
        "a text for an image": json.dumps({**request, "inputs": ["a photo of a seven"]}),
        "NaN pixels": case.body.replace(first, nan, 1),
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
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--width", type=int, default=32, help="channels of the network")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = make_bundle(Path(folder), options.width)
        cases = make_cases(Bundle.open(path))
        print(
            f"{CLIENTS} clients, {KEPT} kept in memory; {options.callers} callers for {options.seconds:g} s", flush=True
        )
        with server(path) as (process, port), ThreadPoolExecutor(options.callers) as pool:
            began = time.perf_counter()
            jobs = [
                pool.submit(call, port, cases, number, began + options.seconds) for number in range(options.callers)
            ]
            results = [job.result() for job in jobs]
            seconds = time.perf_counter() - began
            latencies = 1000 * np.concatenate([latencies for latencies, _, _ in results])
            inputs, wrong = sum(result[1] for result in results), [each for result in results for each in result[2]]
            for each in wrong[:5]:
                print(f"  {each}")
            faults = abuse(port, cases[0])
            if process.poll() is not None:
                faults.append("the server ended")
    if process.returncode != 0:
        faults.append(f"the server ended with code {process.returncode}")
    p50, p99 = np.percentile(latencies, (50, 99)) if len(latencies) else (np.nan, np.nan)
    print(
        f"{options.callers} callers, {seconds:.0f} s: {len(latencies) / seconds:,.0f} requests/s, "
        f"{inputs / seconds:,.0f} inputs/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(wrong)} errors in "
        f"{len(latencies):,} requests" + "".join(f"; {fault}" for fault in faults)
    )
    return 1 if wrong or faults or not len(latencies) else 0


if __name__ == "__main__":
    sys.exit(main())
