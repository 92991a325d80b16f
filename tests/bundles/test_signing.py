"""Signatures of bundles, and all that breaks one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.deployed import Deployed, change_manifest
from xfed.cli import execute

pytestmark = pytest.mark.slow


def write_key(path: Path, key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> tuple[Path, Path]:
    private, public = path / "private.pem", path / "public.pem"
    path.mkdir()
    private.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_a_signature_and_what_breaks_it(deployed: Deployed, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = shutil.copytree(deployed.path, tmp_path / "bundle")
    private, public = write_key(tmp_path / "mine", Ed25519PrivateKey.generate())
    _, other = write_key(tmp_path / "other", Ed25519PrivateKey.generate())

    def verified(key: Path) -> tuple[int, str]:
        code = execute(["verify", str(bundle), "--key", str(key)])
        said = capfd.readouterr()
        return code, said.out + said.err

    assert verified(public)[0] == 1
    assert "it is not signed" in verified(public)[1]
    assert execute(["sign", str(bundle), "--key", str(private)]) == 0
    assert deployed.bundle().digest in capfd.readouterr().out
    assert verified(public)[0] == 0
    assert verified(other) == (1, f"xfed: {bundle}: its signature is not one of {str(other)!r} for this bundle\n")
    if shutil.which("openssl"):
        command = "openssl pkeyutl -verify -pubin -inkey {} -rawin -in bundle.json -sigfile bundle.json.sig"
        checked = subprocess.run(command.format(public).split(), cwd=bundle, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr
    change_manifest(bundle, lambda manifest: manifest.update(macs=[1, 2, 3]))
    assert verified(public)[0] == 1
    (bundle / "networks" / "weights.bin").write_bytes(b"")
    assert verified(public)[0] == 2, "what the manifest vouches for is checked before any signature"


def test_keys_that_cannot_be_used(deployed: Deployed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve, _ = write_key(tmp_path / "curve", ec.generate_private_key(ec.SECP256R1()))
    private, public = write_key(tmp_path / "mine", Ed25519PrivateKey.generate())
    for command, key in (("sign", curve), ("sign", public), ("verify", private), ("sign", tmp_path / "none")):
        assert execute([command, str(deployed.path), "--key", str(key)]) == 2
        said = capsys.readouterr().err
        assert "is not an Ed25519" in said or "cannot be read" in said
        assert "Traceback" not in said
