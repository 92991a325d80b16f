"""A server against the runtime that it serves."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.deployed import deploy, random_clients
from tests.serving.served import LIMITS, Caller, encoded, file_of, same, serving
from xfed.data.dataset import Dataset
from xfed.models.transformer import Transformer
from xfed_runtime import Bundle, Device, Policy
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.networks import Networks
from xfed_runtime.serving.service import Service, Setup
from xfed_runtime.text import SPECIAL, Vocabulary


@pytest.mark.parametrize(
    ("wish", "policy"),
    [
        ({}, Policy("confidence", threshold=0.8)),
        ({"policy": None, "budget": None}, Policy("confidence", threshold=0.8)),
        ({"answer": "running"}, Policy("confidence", threshold=0.8, answer="running")),
        ({"policy": "exit-1"}, Policy("fixed", exit=1)),
        ({"policy": {"kind": "entropy", "threshold": [1.5, 1.0]}}, Policy("entropy", threshold=(1.5, 1.0))),
        ({"policy": "exit-3", "answer": "running"}, Policy("fixed", exit=3, answer="running")),
        ({"budget": "60%"}, Policy("fixed", exit=1)),
        ({"budget": 1e9}, Policy("fixed", exit=3)),
        ({"budget": "100%", "answer": "own"}, Policy("fixed", exit=3)),
    ],
)
def test_answers_are_the_runtimes(
    caller: Caller, bundle: Bundle, pixels: Any, wish: dict[str, Any], policy: Policy
) -> None:
    for client in (0, 3):
        got = caller.predict(client=client, inputs=pixels.tolist(), **wish)
        same(got["answers"], bundle.runtime(client).predict(pixels, policy))
        assert got["client"] == client
        assert Policy.from_json({**got["policy"], "note": ""}) == policy


def test_images_as_bytes_and_files(caller: Caller, bundle: Bundle, pixels: Any) -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    colour = np.stack([grey] * 3, axis=2)
    given = [
        {"raw": encoded(pixels[0].tobytes())},
        {"file": encoded(file_of(grey))},
        {"file": encoded(file_of(colour))},
        pixels[1].tolist(),
    ]
    wanted = np.stack([pixels[0], grey[None] * (16 / 255), grey[None] * (16 / 255), pixels[1]]).astype(np.float32)
    last = Policy("fixed", exit=3)
    same(
        caller.predict(client=4, inputs=given, policy="exit-3")["answers"],
        bundle.runtime(4).predict(wanted, last),
        1e-6,
    )
    caller.predict(client=4, inputs=[{"file": encoded(file_of(grey, "JPEG"))}])


@pytest.mark.parametrize("format", ["onnx-stages", "onnx-if"])
def test_every_exit_explained(bundle: Bundle, pixels: Any, halving: dict[int, Policy], format: str) -> None:
    with serving(Service(bundle.root, Setup(format=format))) as caller:
        for policy in (halving[3], replace(halving[3], answer="running")):
            got = caller.predict(client=3, inputs=pixels.tolist(), policy=policy.to_json(), explain=True)["answers"]
            runtime = bundle.runtime(3, format)
            same(got, runtime.predict(pixels, policy))
            for number in (1, 2, 3):
                wanted = runtime.predict(pixels, Policy("fixed", exit=number, answer=policy.answer))
                exits = [answer["exits"][number - 1] for answer in got]
                assert [each["exit"] for each in exits] == [number] * 12
                assert [each["label"] for each in exits] == wanted.labels.tolist()
                assert [each["macs"] for each in exits] == wanted.macs.tolist()
                confidence = np.array([each["confidence"] for each in exits], dtype=np.float32)
                np.testing.assert_array_equal(confidence, wanted.probabilities.max(axis=1))
                assert all(each["ms"] > 0 for each in exits)
        assert "exits" not in caller.predict(client=3, inputs=pixels[:1].tolist())["answers"][0]


def test_clients_side_by_side(caller: Caller, bundle: Bundle, pixels: Any, halving: dict[int, Policy]) -> None:
    """More clients than networks in memory, so that some are loaded again while others answer."""
    wanted = {
        (client, size): bundle.runtime(client).predict(pixels[:size], halving[client])
        for client in (0, 3, 4)
        for size in (1, 5, 12)
    }

    def talk(first: int) -> None:
        for turn in range(15):
            client, size = (0, 3, 4)[(first + turn) % 3], (1, 5, 12)[(first + turn // 3) % 3]
            got = caller.predict(client=client, inputs=pixels[:size].tolist(), policy=halving[client].to_json())
            same(got["answers"], wanted[client, size], 1e-6)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(talk, range(4)))


def samples(text: str) -> dict[str, float]:
    """Read Prometheus' text format, by its rules: HELP and TYPE once before each family, one sample per line."""
    found, family = {}, ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
        elif line.startswith("# TYPE "):
            assert re.fullmatch(rf"# TYPE {family} (counter|gauge|histogram)", line)
        else:
            match = re.fullmatch(r'([a-z_]+)(\{\w+="[^"]*"(?:,\w+="[^"]*")*\})? (\S+)', line)
            assert match, line
            assert match[1] in (family, f"{family}_bucket", f"{family}_sum", f"{family}_count")
            assert line not in found
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_metrics_count_what_happened(bundle: Bundle, pixels: Any, halving: dict[int, Policy]) -> None:
    with serving(Service(bundle.root, Setup(limits=LIMITS))) as caller:
        exits: Counter[int] = Counter()
        macs = 0
        for policy in (Policy("fixed", exit=1), halving[0], Policy("fixed", exit=3)):
            for answer in caller.predict(client=0, inputs=pixels.tolist(), policy=policy.to_json())["answers"]:
                exits[answer["exit"]] += 1
                macs += answer["macs"]
        caller.refused("{")
        caller.call("GET", "/no/such/page")
        caller.call("GET", "/nor/this")
        status, text, headers = caller.call("GET", "/metrics")
    found = samples(text)
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert exits[1] == 12 + 6
    assert {j: found[f'xfed_answers_total{{exit="{j}"}}'] for j in (1, 2, 3)} == {j: exits[j] for j in (1, 2, 3)}
    assert found["xfed_macs_total"] == macs
    assert found['xfed_requests_total{path="/predict",status="200"}'] == 3
    assert found['xfed_requests_total{path="/predict",status="400"}'] == 1
    assert found['xfed_requests_total{path="other",status="404"}'] == 2
    buckets = [value for name, value in found.items() if name.startswith("xfed_predict_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["xfed_predict_seconds_count"] == 3
    assert found["xfed_predict_seconds_sum"] > 0
    assert found["xfed_requests_in_progress"] == 0
    assert found["xfed_networks_loaded"] == 1


def test_what_is_served(caller: Caller, bundle: Bundle) -> None:
    described = caller.get("/bundle?client=3")
    assert described["clients"] == [0, 3, 4]
    assert described["classes"] == [str(digit) for digit in range(10)]
    assert [each["macs"] for each in described["exits"]] == list(bundle.macs)
    assert described["policies_of"] == 3
    assert described["policies"]["exit-1"] == {
        "policy": {"kind": "fixed", "exit": 1, "answer": "own"},
        "macs": bundle.macs[0],
        "accuracy": 0.5,
    }
    assert caller.get("/bundle")["default_client"] is None
    for query, sentence in (("7", "the bundle has no client 7"), ("x", "client: Input should be a valid integer")):
        status, text, _ = caller.call("GET", f"/bundle?client={query}")
        assert status == 422
        assert json.loads(text)["detail"].startswith(sentence)


def test_openapi_says_what_an_input_is(caller: Caller) -> None:
    described = caller.get("/openapi.json")
    paths = {"/predict", "/bundle", "/health", "/ready", "/metrics", "/admin/reload", "/admin/rollback"}
    assert set(described["paths"]) == paths
    schemas = described["components"]["schemas"]
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(described)):
        assert reference.removeprefix("#/components/schemas/") in schemas
    request = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert request == {"$ref": "#/components/schemas/PredictRequest"}
    numbers, raw, file = schemas["PredictRequest"]["properties"]["inputs"]["items"]["anyOf"]
    sizes = []
    while numbers["type"] == "array":
        assert numbers["minItems"] == numbers["maxItems"]
        sizes.append(numbers["minItems"])
        numbers = numbers["items"]
    assert sizes == [1, 8, 8]
    assert (numbers["minimum"], numbers["maximum"]) == (0, 16)
    assert (raw["required"], file["required"]) == (["raw"], ["file"])
    assert {"kind", "threshold", "exit", "enabled"} <= set(schemas["Policy"]["properties"])


def test_a_default_client_and_deadlines(bundle: Bundle, pixels: Any) -> None:
    slow = Device("d", "r", 1, (1.0, 1e6, 2e6), (1.0, 1e6, 2e6), 1)
    with serving(Service(bundle.root, Setup(client=4, device=slow, limits=LIMITS))) as caller:
        got = caller.predict(inputs=pixels[:3].tolist(), deadline_ms=60_000)
        same(got["answers"], bundle.runtime(4).predict(pixels[:3], Policy("fixed", exit=1)), 1e-6)
        assert got["client"] == caller.get("/bundle")["default_client"] == 4
        assert caller.refused(json.dumps({"inputs": pixels[:1].tolist(), "deadline_ms": -1}))[0] == 422
    with pytest.raises(ServingError, match="the latency table is for 1 exits, but the bundle has 3"):
        Service(bundle.root, Setup(device=Device("d", "r", 1, (1.0,), (1.0,), 1)))
    with pytest.raises(ServingError, match="for deadlines, which need the format onnx-stages; onnx-if has none"):
        Service(bundle.root, Setup(device=slow, format="onnx-if"))


def test_the_other_format(bundle: Bundle, pixels: Any, halving: dict[int, Policy]) -> None:
    with serving(Service(bundle.root, Setup(format="onnx-if"))) as caller:
        patience = {"kind": "patience", "patience": 1}
        got = caller.predict(client=3, inputs=pixels.tolist(), policy=halving[3].to_json())["answers"]
        same(got, bundle.runtime(3, "onnx-if").predict(pixels, halving[3]))
        status, detail = caller.refused(json.dumps({"client": 0, "inputs": pixels[:1].tolist(), "policy": patience}))
        assert status == 422
        assert "'patience' needs the format onnx-stages" in detail


def test_a_failed_load_is_tried_again() -> None:
    outcomes: Iterator[Callable[[], Any]] = iter([lambda: 1 / 0, lambda: "network"])
    networks = Networks(lambda _: next(outcomes)(), 2)
    with pytest.raises(ZeroDivisionError):
        networks.get(0)
    assert len(networks) == 0
    assert networks.get(0) == "network"  # type: ignore[comparison-overlap]


@pytest.mark.slow
def test_texts(tmp_path: Path) -> None:
    vocabulary = Vocabulary((*SPECIAL, *(f"word{number}" for number in range(30))))
    texts = ["word3 word1", "word9", " ".join(f"word{k % 31}" for k in range(40))]
    ids = torch.from_numpy(vocabulary.encode(texts, 20))
    data = Dataset("news", ids, torch.arange(3), tuple("abc"), kind="text", vocabulary=vocabulary.words)
    torch.manual_seed(1)
    settings = Transformer.Settings(vocabulary=40, width=8, depth=3, heads=2, feedforward=16)
    network = Transformer(settings).build((20,), 3, "all").eval()
    made = deploy(network, data, tmp_path / "bundle", random_clients(network, [0, 1]), ["onnx-stages"]).bundle()
    with serving(Service(made.root, Setup(client=1))) as caller:
        policy = Policy("fixed", exit=3)
        wanted = made.runtime(1).predict(texts, policy)
        for inputs in (texts, ids.tolist()):
            got = caller.predict(inputs=inputs, policy=policy.to_json())["answers"]
            assert [a["class"] for a in got] == ["abc"[label] for label in wanted.labels]
            probabilities = np.array([a["probabilities"] for a in got], dtype=np.float32)
            np.testing.assert_allclose(probabilities, wanted.probabilities, rtol=0, atol=1e-6)
        schema = caller.get("/bundle")["inputs"]
        assert [each["type"] for each in schema["anyOf"]] == ["string", "array"]
        for inputs, sentence in (
            ([[]], "input 1 is a list of 0; this network takes a text, or 1 to 20 token ids"),
            ([[[1, 2], [3, 4]]], "input 1 holds [1, 2], which is no token id; allowed: whole numbers"),
            (["word1", [1, 2]], "input 2 is a list of 2, but the first input is a text"),
            ([[1, 2], "word1"], "input 2 is a text; this network takes"),
            ([[1, 33]], "input 1 has token ids from 1 to 33; allowed: 0 to 32"),
            ([[1, 2.0]], "input 1 holds 2.0, which is no token id"),
            (["a" * 100_001], "input 1 has 100,001 characters; allowed: up to 100,000"),
        ):
            status, detail = caller.refused(json.dumps({"inputs": inputs}))
            assert status == 422
            assert sentence in detail
