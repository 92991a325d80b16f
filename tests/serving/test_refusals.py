"""Requests that nobody should send, and how they are refused."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.deployed import Deployed, deploy, random_clients
from tests.serving.served import Caller, encoded, file_of, serving
from xfed_runtime import Bundle, BundleError, InputsError
from xfed_runtime.inputs import ImageInputs
from xfed_runtime.serving.decoding import decode
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.schemas import RequestError
from xfed_runtime.serving.service import Reply, Service, Setup
from xfed_runtime.serving.tokens import Access
from xfed_runtime.sessions import StageEngine

ZEROS = np.zeros((1, 8, 8)).tolist()
JSON_ZEROS = json.dumps(ZEROS)


def body(inputs: str = f"[{JSON_ZEROS}]", more: str = "") -> str:
    return f'{{"client": 0, "inputs": {inputs}{more}}}'


def with_pixel(value: str) -> str:
    return body(f"[{JSON_ZEROS}, {JSON_ZEROS.replace('0.0', value, 1)}]")


def with_file(content: bytes) -> str:
    return body(json.dumps([{"file": encoded(content)}]))


BAD = {
    "malformed": ('{"client": 0, "inputs": [', 400, "the body is not JSON: EOF while parsing"),
    "empty": ("", 400, "the body is not JSON"),
    "no utf-8": (b"\xff\xfe{}", 400, "the body is not JSON"),
    "deep": (body("[" * 9 + "]" * 9), 400, "nested more than 8 deep, or not closed"),
    "deep and open": (body("[" * 12), 400, "nested more than 8 deep, or not closed"),
    "endless lists": ('{"inputs": ' + "[" * 100_000, 413, "the request has 50,000 lists and objects; allowed: up to"),
    "endless values": (body(f"[{'0,' * 20_000}0]"), 413, r"20,00\d values; allowed: up to 2,280"),
    "endless strings": (body("[" + '"",' * 20_000 + "0]"), 413, "strings; allowed: up to 1,040"),
    "a list": ("[1, 2]", 422, "the body: input should be an object"),
    "nothing": ("{}", 422, "inputs: field required"),
    "unknown key": (body(more=', "budgett": 3'), 422, "a request has no 'budgett'; allowed: inputs, client, policy"),
    "no input": (body("[]"), 422, "inputs: list should have at least 1 item"),
    "too many inputs": (body(f"[{','.join(['0'] * 21)}]"), 422, "the request has 21 inputs; allowed: 1 to 20"),
    "client left out": (json.dumps({"inputs": [ZEROS]}), 422, "the request names no client"),
    "unknown client": (body().replace('"client": 0', '"client": 1'), 422, "the bundle has no client 1"),
    "client as text": (body().replace('"client": 0', '"client": "0"'), 422, "client: input should be a valid integer"),
    "text for an image": (body('["a photo of a cat"]'), 422, r"input 1 is a text; this network takes images: numbers"),
    "number for an image": (body("[7]"), 422, "input 1 is of shape none; this network takes images"),
    "null for an image": (body("[null]"), 422, "input 1 is null"),
    "truth": (body("[true]"), 422, "input 1 is true or false"),
    "wrong shape": (body("[[[1, 2], [3, 4]]]"), 422, "input 1 is of shape 2 × 2; .* 1 × 8 × 8"),
    "ragged": (body("[[[1, 2], [3]]]"), 422, "input 1 is a list of 2"),
    "texts inside": (body('[[[["1"]]]]'), 422, "input 1 is a list of 1"),
    "NaN": (with_pixel("NaN"), 422, "input 2 has pixels that are not finite numbers"),
    "infinite": (with_pixel("1e999"), 422, "input 2 has pixels that are not finite"),
    "too bright": (with_pixel("17"), 422, "input 2 has pixels from 0 to 17; allowed: 0 to 16"),
    "too dark": (with_pixel("-0.5"), 422, "input 2 has pixels from -0.5 to 0; allowed: 0 to 16"),
    "endless integer": (with_pixel("9" * 400), 422, "input 2 is a list of 1"),
    "not base64": (body('[{"raw": "§§"}]'), 422, "input 1: 'raw' is not base64"),
    "raw is a number": (body('[{"raw": 3}]'), 422, "input 1: 'raw' is not base64"),
    "raw too short": (body('[{"raw": "AAAA"}]'), 422, "input 1: 'raw' has 3 bytes; this network takes 1 × 8 × 8 = 64"),
    "raw too bright": (
        body(json.dumps([{"raw": encoded(b"\x20" * 64)}])),
        422,
        "pixels from 32 to 32; allowed: 0 to 16",
    ),
    "strange object": (body('[{"url": "http://x"}]'), 422, "input 1 is an object with url; allowed: raw, or file"),
    "empty object": (body("[{}]"), 422, "input 1 is an object with nothing"),
    "no image file": (with_file(b"GIF89a"), 422, "input 1: 'file' is not a PNG or JPEG"),
    "cut image file": (with_file(file_of(np.zeros((8, 8), np.uint8))[:45]), 422, "'file' is not a PNG or JPEG"),
    "large image": (with_file(file_of(np.zeros((900, 800), np.uint8))), 422, "input 1 has 800 × 900 pixels; .* 8 × 8"),
    "16 bits": (with_file(file_of(np.zeros((8, 8), np.uint16))), 422, "input 1 has more than 8 bits a channel"),
    "unknown policy": (body(more=', "policy": "fast"'), 422, "no policy 'fast'; it has: default, exit-1, exit-3"),
    "long policy name": (body(more=f', "policy": "{"x" * 10_000}"'), 422, "no policy 'xxx"),
    "bad policy": (body(more=', "policy": {"kind": "confidence", "threshold": 2}'), 422, "threshold is 2; allowed"),
    "policy a number": (body(more=', "policy": 3'), 422, "policy: a policy is a JSON object, not int"),
    "policy for others": (
        body(more=', "policy": {"kind": "fixed", "exit": 9}'),
        422,
        "the policy leaves at exit 9, but the network has 3",
    ),
    "impossible budget": (body(more=', "budget": "1%"'), 422, "no policy of the bundle keeps to"),
    "no budget": (body(more=', "budget": "cheap"'), 422, "budget is 'cheap'; allowed"),
    "two wishes": (body(more=', "policy": "default", "budget": "60%"'), 422, "give one of policy, budget"),
    "unknown deadline": (body(more=', "deadline_ms": 5'), 422, "a deadline needs this device's latencies"),
    "deadline as text": (body(more=', "deadline_ms": "5"'), 422, "deadline_ms: input should be a valid number"),
    "unknown answer": (body(more=', "answer": "best"'), 422, "answer: input should be 'own' or 'running'"),
    "answer to a budget": (body(more=', "budget": "60%", "answer": "running"'), 422, "no policy of running answers"),
    "quantile alone": (body(more=', "quantile": 0.95'), 422, "quantile goes with deadline_ms"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_answered_is_refused_in_one_sentence(caller: Caller, name: str) -> None:
    given, wanted, sentence = BAD[name]
    status, detail = caller.refused(given)
    assert (status, bool(re.search(sentence, detail))) == (wanted, True), detail
    assert caller.get("/health") == {"status": "ok"}


def test_only_json_is_taken(caller: Caller) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "image/png"):
        status, detail = caller.refused(body(), kind=kind)
        assert (status, detail) == (415, f"content-type is {kind!r}; allowed: application/json")
    assert caller.call("POST", "/predict", body(), "Application/JSON; charset=utf-8")[0] == 200


def test_a_large_body_is_not_taken_in(caller: Caller) -> None:
    assert caller.call("POST", "/predict", body().ljust(200_000))[0] == 200
    assert caller.refused(body().ljust(200_001)) == (413, "the body is larger than 200,000 bytes")
    assert caller.get("/health") == {"status": "ok"}


def test_a_declared_size_is_enough_to_refuse(caller: Caller) -> None:
    with socket.create_connection(("127.0.0.1", caller.port), timeout=10) as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50000000\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


class Stuck(Service):
    """Predicts when told to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.began, self.go = threading.Event(), threading.Event()

    def answer(self, questions: Any) -> Any:
        self.began.set()
        assert self.go.wait(30)
        return super().answer(questions)


def test_others_are_answered_during_a_prediction_and_too_many_told_to_come_back(bundle: Bundle) -> None:
    service = Stuck(bundle.root, Setup(limits=Limits(requests=1)))
    with serving(service) as caller, ThreadPoolExecutor(1) as pool:
        try:
            first = pool.submit(caller.call, "POST", "/predict", body())
            assert service.began.wait(30)
            assert caller.get("/health") == {"status": "ok"}
            assert "xfed_requests_in_progress 1\n" in caller.call("GET", "/metrics")[1]
            status, text, headers = caller.call("POST", "/predict", body())
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(text) == {"detail": "the server is busy with 1 requests; try again"}
        finally:
            service.go.set()
        assert first.result()[0] == 200
        assert caller.call("POST", "/predict", body())[0] == 200


def test_a_body_that_never_comes_makes_room(bundle: Bundle) -> None:
    with (
        serving(Service(bundle.root, Setup(limits=Limits(requests=1, body_seconds=0.2)))) as caller,
        socket.create_connection(("127.0.0.1", caller.port), timeout=10) as connection,
    ):
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
        assert caller.call("POST", "/predict", body())[0] == 200


def test_a_caller_that_hangs_up_is_no_failure(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Service(bundle.root, Setup())) as caller:
        with socket.create_connection(("127.0.0.1", caller.port), timeout=10) as connection:
            connection.sendall(
                b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
            )
        wanted, until = 'xfed_requests_total{path="/predict",status="400"} 1\n', time.monotonic() + 20
        while wanted not in caller.call("GET", "/metrics")[1]:
            assert time.monotonic() < until
    assert capfd.readouterr().err == ""


def test_networks_that_are_no_numbers_are_refused_as_such(deployed: Deployed, tmp_path: Path) -> None:
    own = random_clients(deployed.network, [0, 3])
    own[3] = {name: torch.full_like(tensor, torch.nan) for name, tensor in own[3].items()}
    made = deploy(deployed.network, deployed.dataset, tmp_path / "bundle", own, ["onnx-stages"])
    with serving(Service(made.path, Setup())) as caller:
        status, detail = caller.refused(body().replace('"client": 0', '"client": 3'))
        assert status == 503
        assert re.match("the network of client 3 cannot be used: .* not finite", detail)
        assert caller.call("POST", "/predict", body())[0] == 200
    with pytest.raises(BundleError, match="not finite"):
        Service(made.path, Setup(client=3))


def test_an_input_without_a_finite_answer_is_refused_alone(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where weights are so large that some inputs overflow."""
    service = Service(bundle.root, Setup())
    run = StageEngine.run

    def overflowing(self: StageEngine, inputs: Any, *more: Any) -> Any:
        found = run(self, inputs, *more)
        found.probabilities[inputs[:, 0, 0, 0] > 0.5] = np.nan
        return found

    monkeypatch.setattr(StageEngine, "run", overflowing)
    bright = JSON_ZEROS.replace("0.0", "16", 1)
    questions = [service.read(body(f"[{given}]").encode(), Access()) for given in (JSON_ZEROS, bright, JSON_ZEROS)]
    assert len({question.kind for question in questions}) == 1
    good, bad, also_good = service.answer(questions)
    assert isinstance(bad, RequestError)
    assert (bad.status, str(bad)) == (422, "the network of client 0 answers with numbers that are not finite")
    for reply in (good, also_good):
        assert isinstance(reply, Reply)
        assert json.loads(reply.content)["answers"][0]["confidence"] > 0


@given(
    pixels=st.lists(st.one_of(st.floats(), st.integers(-300, 300)), min_size=4, max_size=4),
    scale=st.sampled_from([1.0, 16.0, 255.0]),
)
def test_the_server_takes_what_the_runtime_takes(pixels: list[float], scale: float) -> None:
    inputs = ImageInputs((1, 2, 2), scale, 0.5, 0.5)
    image = np.array(pixels).reshape(1, 2, 2)
    try:
        inputs.prepare(image[None])
        taken = True
    except InputsError:
        taken = False
    try:
        decode(inputs, [image.tolist()])
        assert taken
    except RequestError:
        assert not taken


class Broken(Service):
    """Fails where nobody expects it."""

    def answer(self, questions: Any) -> Any:
        raise RuntimeError("a secret")


def test_a_failure_tells_nothing_and_ends_nothing(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Broken(bundle.root, Setup())) as caller:
        assert caller.refused(body()) == (500, "the server failed at this request; its log says why")
        assert caller.get("/health") == {"status": "ok"}
        assert 'xfed_requests_total{path="/predict",status="500"} 1\n' in caller.call("GET", "/metrics")[1]
    assert "a secret" in capfd.readouterr().err, "the log says why"
