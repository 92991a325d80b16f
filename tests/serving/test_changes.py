"""Bundles that change: reload, rollback, and files that someone changes under the server."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed, deploy, random_clients
from tests.serving.served import Caller, same, serving, started
from xfed_runtime import Bundle, Policy
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.generations import Generations
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.service import Service, Setup

ADMIN, OTHER = "token-of-the-operator", "token-of-everyone-else"
LAST = Policy("fixed", exit=3)


@pytest.fixture
def place(deployed: Deployed, tmp_path: Path) -> Path:
    """Where the server reads its bundle; first the one of `deployed`."""
    shutil.copytree(deployed.path, tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture(scope="session")
def newer(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another bundle of the same network: what client 3 was is client 0 now."""
    own = random_clients(deployed.network, [3, 4])
    path = tmp_path_factory.mktemp("newer") / "bundle"
    return deploy(deployed.network, deployed.dataset, path, {0: own[3], 3: own[4], 4: own[3]}).path


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"{ADMIN} admin\n{OTHER} all\n")
    return path


def put(bundle: Path, place: Path) -> None:
    """Put a bundle in the place of another, as someone does who copies it there."""
    shutil.rmtree(place)
    shutil.copytree(bundle, place)


def ask(caller: Caller, path: str, body: Any = None, token: str = ADMIN, method: str = "POST") -> tuple[int, Any]:
    status, text, _ = caller.call(method, path, body, authorization=f"Bearer {token}")
    return status, json.loads(text)


def answers(caller: Caller, client: int, pixels: Any) -> Any:
    request = {"client": client, "inputs": pixels.tolist(), "policy": LAST.to_json()}
    status, got = ask(caller, "/predict", json.dumps(request), OTHER)
    assert status == 200, got
    return got


def test_reload_and_rollback(place: Path, newer: Path, tokens: Path, deployed: Deployed, pixels: Any) -> None:
    generations = Generations(lambda: Service(place, Setup(limits=Limits(networks=1))))
    old, new = deployed.bundle(), Bundle.open(newer)
    with serving(generations, tokens) as caller:

        def served(bundle: Bundle) -> str:
            for client in (0, 3, 4):
                got = answers(caller, client, pixels)
                same(got["answers"], bundle.runtime(client).predict(pixels, LAST))
            _, described = ask(caller, "/bundle", token=OTHER, method="GET")
            _, _, headers = caller.call("GET", "/health")
            assert got["bundle"] == described["bundle"] == headers["xfed-bundle"]
            return str(got["bundle"])

        first = served(old)
        assert ask(caller, "/admin/rollback")[0] == 409, "there is nothing to go back to"
        assert ask(caller, "/admin/reload") == (200, {"bundle": first, "previous": None, "changed": False})
        put(newer, place)
        assert served(old) == first, "clients that were not in memory included"
        assert ask(caller, "/admin/reload", token=OTHER)[0] == 403
        status, change = ask(caller, "/admin/reload")
        assert (status, change["previous"], change["changed"]) == (200, first, True)
        assert served(new) == change["bundle"] != first
        assert ask(caller, "/admin/rollback") == (
            200,
            {"bundle": first, "previous": change["bundle"], "changed": True},
        )
        assert served(old) == first, "although its files are gone from where they were"
        ask(caller, "/admin/rollback")
        assert served(new) == change["bundle"]
        _, text, _ = caller.call("GET", "/metrics", authorization=f"Bearer {OTHER}")
        assert f'xfed_bundle_info{{id="{change["bundle"]}"}} 1\n' in text
        assert 'xfed_bundle_changes_total{kind="rollback",outcome="done"} 2\n' in text
        assert 'xfed_bundle_changes_total{kind="rollback",outcome="refused"} 1\n' in text


def test_a_broken_bundle_is_refused_and_the_old_one_stays(place: Path, tokens: Path, pixels: Any) -> None:
    with serving(Generations(lambda: Service(place, Setup())), tokens) as caller:
        before = answers(caller, 3, pixels)
        graph = next(place.rglob("*.onnx"))
        graph.write_bytes(graph.read_bytes()[:-1] + b"!")
        status, problem = ask(caller, "/admin/reload")
        assert status == 409
        assert re.search(r"is not what bundle.json vouches for.*; bundle \w+ goes on answering", problem["detail"])
        (place / "bundle.json").write_text("{")
        assert ask(caller, "/admin/reload")[0] == 409
        shutil.rmtree(place)
        assert ask(caller, "/admin/reload")[0] == 409
        after = answers(caller, 3, pixels)
        assert after["bundle"] == before["bundle"]
        assert [a["probabilities"] for a in after["answers"]] == [a["probabilities"] for a in before["answers"]]


def test_tokens_are_read_again_too(place: Path, tokens: Path) -> None:
    with serving(Generations(lambda: Service(place, Setup())), tokens) as caller:
        tokens.write_text("short all\n")
        assert ask(caller, "/admin/reload")[0] == 409
        assert ask(caller, "/bundle", method="GET")[0] == 200, "the old ones hold"
        tokens.write_text("a-new-token-for-admins admin\n")
        assert ask(caller, "/admin/reload")[0] == 200
        assert ask(caller, "/bundle", method="GET")[0] == 401
        assert ask(caller, "/bundle", token="a-new-token-for-admins", method="GET")[0] == 200


def test_a_refused_reload_changes_no_token(place: Path, tokens: Path) -> None:
    with serving(Generations(lambda: Service(place, Setup())), tokens) as caller:
        tokens.write_text("a-new-token-for-admins admin\n")
        kept = place.rename(place.with_name("kept"))
        assert ask(caller, "/admin/reload")[0] == 409
        assert ask(caller, "/bundle", method="GET")[0] == 200
        assert ask(caller, "/bundle", token="a-new-token-for-admins", method="GET")[0] == 401
        kept.rename(place)
        assert ask(caller, "/admin/reload")[0] == 200
        assert ask(caller, "/bundle", method="GET")[0] == 401


def test_nobody_may_change_anything_without_tokens(place: Path) -> None:
    with serving(Service(place, Setup())) as caller:
        status, text, _ = caller.call("POST", "/admin/reload")
        assert status == 403
        assert "start the server with --token-file" in json.loads(text)["detail"]


def test_a_change_during_a_change_is_refused_and_requests_are_answered_meanwhile(
    place: Path, newer: Path, tokens: Path, pixels: Any
) -> None:
    began, go_on = threading.Event(), threading.Event()
    loads = 0

    def load() -> Service:
        nonlocal loads
        loads += 1
        if loads > 1:
            began.set()
            assert go_on.wait(30)
        return Service(place, Setup())

    with serving(Generations(load), tokens) as caller:
        put(newer, place)
        statuses: list[int] = []
        first = threading.Thread(target=lambda: statuses.append(ask(caller, "/admin/reload")[0]))
        first.start()
        assert began.wait(30)
        before = answers(caller, 0, pixels)["bundle"]
        assert ask(caller, "/admin/reload") == (409, {"detail": "the bundle is being changed already"})
        go_on.set()
        first.join(30)
        assert statuses == [200]
        assert answers(caller, 0, pixels)["bundle"] != before


def test_a_copy_that_someone_changes_is_not_loaded_from(place: Path, deployed: Deployed, pixels: Any) -> None:
    service = Service(place, Setup(client=0, limits=Limits(networks=2)))
    with serving(service) as caller:
        assert caller.get("/ready") == {"status": "ready", "bundle": service.id}
        for file in service.bundle.root.rglob("*"):
            if file.is_file() and file.name != "bundle.json":
                content = file.read_bytes()
                file.unlink()
                file.write_bytes(content)  # even the same bytes: nobody has checked them
        status, text, _ = caller.call("GET", "/ready")
        assert (status, "someone changed the server's own copy" in text) == (503, True)
        status, detail = caller.refused(json.dumps({"client": 3, "inputs": pixels[:1].tolist()}))
        assert status == 503
        assert detail.startswith("the network of client 3 cannot be used: ")
        got = caller.predict(client=0, inputs=pixels.tolist(), policy=LAST.to_json())
        same(got["answers"], deployed.bundle().runtime(0).predict(pixels, LAST))


def test_a_reload_repairs_a_copy_that_someone_damaged(
    place: Path, newer: Path, tokens: Path, deployed: Deployed, pixels: Any
) -> None:
    generations = Generations(lambda: Service(place, Setup(client=0)))
    with serving(generations, tokens) as caller:
        broken = generations.current
        next(broken.bundle.root.rglob("*.onnx")).unlink()
        assert ask(caller, "/ready", method="GET")[0] == 503
        assert ask(caller, "/admin/reload") == (200, {"bundle": broken.id, "previous": None, "changed": False})
        assert ask(caller, "/ready", method="GET") == (200, {"status": "ready", "bundle": broken.id})
        assert not broken.bundle.root.exists()
        for client in (0, 3, 4):
            got = answers(caller, client, pixels)
            same(got["answers"], deployed.bundle().runtime(client).predict(pixels, LAST))

        repaired = generations.current
        put(newer, place)
        status, change = ask(caller, "/admin/reload")
        assert (status, change["previous"], change["changed"]) == (200, repaired.id, True)
        next(generations.current.bundle.root.rglob("*.onnx")).unlink()
        put(deployed.path, place)
        status, change = ask(caller, "/admin/reload")
        assert (status, change["bundle"], change["changed"]) == (200, repaired.id, True)
        assert generations.previous is repaired, "a damaged one is nothing to go back to"
        assert repaired.intact()


def test_a_damaged_copy_is_not_gone_back_to(place: Path, newer: Path, tokens: Path, pixels: Any) -> None:
    generations = Generations(lambda: Service(place, Setup(client=0)))
    with serving(generations, tokens) as caller:
        first = generations.current
        put(newer, place)
        second = ask(caller, "/admin/reload")[1]["bundle"]
        next(first.bundle.root.rglob("*.onnx")).unlink()
        status, problem = ask(caller, "/admin/rollback")
        assert (status, problem["detail"]) == (
            409,
            f"someone changed the server's own copy of bundle {first.id}, which answered before; "
            f"bundle {second} goes on answering",
        )
        assert ask(caller, "/ready", method="GET") == (200, {"status": "ready", "bundle": second})
        assert answers(caller, 3, pixels)["bundle"] == second


def test_the_copy_goes_with_the_service(place: Path) -> None:
    service = Service(place, Setup())
    root = service.bundle.root
    assert root.is_dir()
    assert root.stat().st_mode & 0o077 == 0
    service.close()
    assert not root.exists()


def test_a_bundle_that_cannot_be_copied(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(ServingError, match=r"cannot be copied to where temporary files go \(TMPDIR\): "):
        Service(place, Setup())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_hanging_up_reloads(place: Path, newer: Path) -> None:
    with started(sys.executable, "-m", "xfed_runtime.serving", place, "--port", "0") as server:
        caller = server.caller
        first = caller.get("/ready")["bundle"]
        put(newer, place)
        server.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while (second := caller.get("/ready")["bundle"]) == first:
            assert time.monotonic() < until
        shutil.rmtree(place)
        server.process.send_signal(signal.SIGHUP)
        while 'outcome="refused"} 1' not in caller.call("GET", "/metrics")[1]:
            assert time.monotonic() < until
        assert caller.get("/ready")["bundle"] == second
        _, log = server.end()
    assert re.search(rf"reload done: bundle {second} answers\n.*reload refused: .*cannot be read", log)
