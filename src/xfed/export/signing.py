"""Signed bundles: an Ed25519 signature of the manifest, which notes the sha256 of every other file.

The signature is a file of 64 bytes beside the manifest, so other tools check it too:
`openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in bundle.json -sigfile bundle.json.sig`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from xfed.errors import InputError
from xfed_runtime.bundle import Bundle
from xfed_runtime.manifest import MANIFEST, SIGNATURE


def sign(bundle: Bundle, key: Path) -> Path:
    """Sign a bundle whose files are all as its manifest notes them; give the file of the signature."""
    private = _load(key, "private")
    assert isinstance(private, Ed25519PrivateKey)
    path = bundle.root / SIGNATURE
    path.write_bytes(private.sign((bundle.root / MANIFEST).read_bytes()))
    return path


def signature_problem(bundle: Bundle, key: Path) -> str | None:
    """Say what is wrong with a bundle's signature, if anything."""
    public = _load(key, "public")
    assert isinstance(public, Ed25519PublicKey)
    path = bundle.root / SIGNATURE
    if not path.is_file():
        return f"it is not signed: it has no {SIGNATURE}"
    try:
        public.verify(path.read_bytes(), (bundle.root / MANIFEST).read_bytes())
    except InvalidSignature:
        return f"its signature is not one of {str(key)!r} for this bundle"
    return None


def _load(path: Path, kind: str) -> Any:
    """Read a key from a PEM file; only Ed25519 will do."""
    try:
        content = path.read_bytes()
        key = load_pem_private_key(content, None) if kind == "private" else load_pem_public_key(content)
    except OSError as error:
        raise InputError(f"key {str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey if kind == "private" else Ed25519PublicKey):
        raise InputError(f"{str(path)!r} is not an Ed25519 {kind} key in a PEM file without a password")
    return key
