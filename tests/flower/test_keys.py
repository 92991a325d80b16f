"""Keys: who may read them, and that certificates say what they should; read back by an independent library."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from xfed import InputError
from xfed.flower.keys import add_node_key, make_keys


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["127.0.0.1", "localhost"], ["node-0"])
    return tmp_path / "keys"


def test_secrets_are_for_their_owner_alone(keys: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()}
    assert modes == {
        "ca.key": 0o600,
        "ca.crt": 0o644,
        "server.key": 0o600,
        "server.crt": 0o644,
        "node-0": 0o600,
        "node-0.pub": 0o644,
    }
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700


def shake_hands(keys: Path, authority: Path, name: str) -> None:
    """Connect with Python's own TLS, on loopback."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys / "server.crt", keys / "server.key")
    client = ssl.create_default_context(cafile=str(authority))
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with suppress(OSError), theirs, server.wrap_socket(theirs, server_side=True):
            pass

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with ours, client.wrap_socket(ours, server_hostname=name):
            pass
    finally:
        thread.join()


def test_the_certificate_is_good_for_its_hosts_and_under_its_authority_alone(keys: Path, tmp_path: Path) -> None:
    shake_hands(keys, keys / "ca.crt", "127.0.0.1")
    shake_hands(keys, keys / "ca.crt", "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(keys, keys / "ca.crt", "elsewhere.example")
    make_keys(tmp_path / "other", ["127.0.0.1"], [])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(keys, tmp_path / "other" / "ca.crt", "127.0.0.1")


def test_a_node_key_is_a_pair(keys: Path) -> None:
    add_node_key(keys, "node-1")
    for name in ("node-0", "node-1"):
        private = load_ssh_private_key((keys / name).read_bytes(), None)
        public = load_ssh_public_key((keys / f"{name}.pub").read_bytes())
        assert private.public_key().public_numbers() == public.public_numbers()  # type: ignore[union-attr]
    assert (keys / "node-0").read_bytes() != (keys / "node-1").read_bytes()


def test_nothing_is_overwritten(keys: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        make_keys(keys, ["localhost"], [])
    with pytest.raises(InputError, match=r"node name 'node-0'"):
        add_node_key(keys, "node-0")
    with pytest.raises(InputError, match=r"node name '../x'"):
        add_node_key(keys, "../x")


@pytest.mark.parametrize("host", ["bad host!", "", "-a", "a..b"])
def test_hosts_that_are_none_are_refused_before_anything_is_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match=f"--host is {host!r}; allowed: a name such as"):
        make_keys(tmp_path / "keys", ["localhost", host], [])
    assert not (tmp_path / "keys").exists()
