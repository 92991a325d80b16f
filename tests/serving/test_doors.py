"""Who is let in: tokens, names of the server, TLS."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serving.served import Caller, serving
from xfed_runtime import Bundle
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.command import allowed_hosts, warnings
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.service import Service, Setup
from xfed_runtime.serving.tokens import Access, Tokens

FILE = """
# who may do what
the-operators-own-token  admin
a-token-for-everything   all       # a comment
a-token-for-client-3     3
a-token-for-0-and-4      0,4-7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(FILE)
    return path


def asked(caller: Caller, token: str, client: int | None, pixels: Any) -> tuple[int, Any]:
    named = {} if client is None else {"client": client}
    body = json.dumps({**named, "inputs": pixels[:1].tolist()})
    status, text, _ = caller.call("POST", "/predict", body, authorization=f"Bearer {token}")
    return status, json.loads(text)


def test_a_token_is_for_its_clients(bundle: Bundle, file: Path, pixels: Any) -> None:
    with serving(Service(bundle.root, Setup()), file) as caller:
        for token, allowed in (
            ("the-operators-own-token", {0, 3, 4}),
            ("a-token-for-everything", {0, 3, 4}),
            ("a-token-for-client-3", {3}),
            ("a-token-for-0-and-4", {0, 4}),
        ):
            for client in (0, 3, 4):
                status, got = asked(caller, token, client, pixels)
                assert status == (200 if client in allowed else 403)
                if client not in allowed:
                    assert got["detail"].startswith(f"this token may not ask for client {client}")
            status, text, _ = caller.call("GET", "/bundle", authorization=f"bearer {token}")
            assert json.loads(text)["clients"] == sorted(allowed)
        status, got = asked(caller, "a-token-for-client-3", None, pixels)
        assert (status, got["client"]) == (200, 3), "whom the token is for, unless the request says so"
        assert asked(caller, "a-token-for-everything", None, pixels)[0] == 422
        assert asked(caller, "a-token-for-0-and-4", 5, pixels)[0] == 422, "allowed, but not in the bundle"
        status, text, _ = caller.call("GET", "/bundle?client=0", authorization="Bearer a-token-for-client-3")
        assert status == 403


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer a-token-for-client-4", "Basic a-token-for-everything", "a-token-for-everything"]
)
def test_nobody_else_is_let_in(bundle: Bundle, file: Path, header: str) -> None:
    with serving(Service(bundle.root, Setup()), file) as caller:
        given = {"authorization": header} if header else {}
        for method, path in (
            ("POST", "/predict"),
            ("GET", "/bundle"),
            ("GET", "/metrics"),
            ("POST", "/admin/reload"),
            ("POST", "/admin/rollback"),
            ("GET", "/no/such/page"),
        ):
            status, text, headers = caller.call(method, path, "{}" if method == "POST" else None, **given)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert "a known token is needed" in json.loads(text)["detail"]
        for path in ("/health", "/ready", "/", "/docs", "/page.js", "/style.css", "/openapi.json"):
            assert caller.call("GET", path, **given)[0] == 200


def test_a_body_without_a_token_is_not_waited_for(bundle: Bundle, file: Path) -> None:
    with (
        serving(Service(bundle.root, Setup(limits=Limits(body_seconds=60))), file) as caller,
        socket.create_connection(("127.0.0.1", caller.port), timeout=30) as connection,
    ):
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no token"),
        ("# nothing\n", "has no token"),
        ("short all\n", "line 1 of token file .* is not a token of at least 16"),
        ("only-a-token-and-nothing\n", "line 1 of token file .* is not a token of"),
        ("a-token-with-a-colon:1 all\n", "line 1 of token file .* is not a token of"),
        ("a-token-of-two-words all 3\n", "line 1 of token file .* is not a token of"),
        ("a-token-for-nobody 3-x\n", "lets its bearer ask for '3-x'; allowed: admin, all or clients"),
        ("a-token-given-twice 1\na-token-given-twice all\n", "line 2 of .* stands further up"),
    ],
)
def test_a_wrong_token_file(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(ServingError, match=sentence):
        Tokens(path)
    with pytest.raises(ServingError, match="cannot be read"):
        Tokens(tmp_path / "none")


def test_access_by_hand(file: Path) -> None:
    tokens = Tokens(file)
    assert tokens.access("Bearer the-operators-own-token") == Access(None, admin=True)
    some = tokens.access("Bearer a-token-for-0-and-4")
    assert some is not None
    assert [client for client in range(10) if some.to(client)] == [0, 4, 5, 6, 7]
    assert tokens.access("Bearer a-token-for-0-and-\udce4") is None
    assert Tokens(None).access(None) == Access()


def test_the_names_of_the_server(bundle: Bundle, pixels: Any) -> None:
    with serving(Service(bundle.root, Setup()), hosts={"edge.example", "[::1]"}) as caller:
        for host, wanted in (
            ("edge.example", 200),
            ("EDGE.example:8000", 200),
            ("[::1]:80", 200),
            ("127.0.0.1", 421),
            ("evil.example", 421),
            ("edge.example.evil.example", 421),
            ("", 421),
        ):
            status, text, _ = caller.call("GET", "/bundle", host=host)
            assert status == wanted, host
            assert caller.call("GET", "/", host=host)[0] == wanted
            assert caller.call("GET", "/health", host=host)[0] == 200, "probes call the server by its address"
        assert json.loads(text) == {"detail": "this server is not called ''; --allow-host adds a name"}


def test_names_and_warnings_by_where_it_listens() -> None:
    own = {"localhost", "127.0.0.1", "[::1]"}
    assert allowed_hosts("127.0.0.1", None) == own
    assert allowed_hosts("127.0.0.2", None) == own | {"127.0.0.2"}
    assert allowed_hosts("0.0.0.0", None) is None
    assert allowed_hosts("0.0.0.0", ["Edge.example"]) == own | {"edge.example"}
    for host in ("127.0.0.1", "::1", "localhost"):
        assert warnings(host, tokens=False, tls=False) == []
    said = warnings("0.0.0.0", tokens=False, tls=False)
    assert [("--token-file" in each, "--tls-cert" in each) for each in said] == [(True, False), (False, True)]
    assert warnings("192.0.2.1", tokens=True, tls=True) == []


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "cert.pem", folder / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *kind, *name, "-keyout", str(key), "-out", str(made)],
        check=True,
        capture_output=True,
    )
    return made, key


def over_tls(caller: Caller, certificate: Path, pixels: Any) -> Any:
    context = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", caller.port, timeout=30, context=context)
    body = json.dumps({"client": 3, "inputs": pixels[:1].tolist()})
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    content = json.loads(answer.read())
    connection.close()
    return content


def test_tls(bundle: Bundle, certificate: tuple[Path, Path], pixels: Any) -> None:
    with serving(Service(bundle.root, Setup(limits=Limits(headers_seconds=1))), tls=certificate) as caller:
        assert over_tls(caller, certificate[0], pixels)["client"] == 3
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            caller.call("GET", "/health")
        with socket.create_connection(("127.0.0.1", caller.port), timeout=30) as silent:
            assert silent.recv(10) == b"", "a handshake has a deadline"


def test_those_who_never_shake_hands_keep_nobody_out(
    bundle: Bundle, certificate: tuple[Path, Path], pixels: Any
) -> None:
    limits = Limits(headers_seconds=60, connections=8)
    with serving(Service(bundle.root, Setup(limits=limits)), tls=certificate) as caller, ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", caller.port), timeout=30)) for _ in range(20)
        ]
        assert over_tls(caller, certificate[0], pixels)["client"] == 3
        assert silent[0].recv(10) == b""


def test_a_certificate_that_cannot_be_used(bundle: Bundle, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    for wrong in ((certificate[0], tmp_path / "none.pem"), (certificate[1], certificate[1])):
        with (
            pytest.raises(ServingError, match=r"certificate '.*' with key '.*' cannot be used"),
            serving(Service(bundle.root, Setup()), tls=wrong),
        ):
            pass
