"""Keys for a federation: a certificate authority, the server's certificate, and a key pair for every node.

Private keys are readable by their owner alone; nothing that exists is overwritten.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from xfed.errors import InputError

DAYS = 365
HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*", re.IGNORECASE)


def make_keys(folder: Path, hosts: Sequence[str], nodes: Sequence[str]) -> None:
    """Write `ca.crt`, `ca.key`, `server.crt`, `server.key`, and for each node `NAME` and `NAME.pub`."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{str(folder)!r} exists already; give another folder for the keys")
    for host in hosts:
        _host_name(host)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = ec.generate_private_key(ec.SECP384R1())
    root = _certificate("xfed federation", authority, "xfed federation", authority, hosts=None)
    server = ec.generate_private_key(ec.SECP384R1())
    certificate = _certificate(hosts[0], server, "xfed federation", authority, hosts)
    _write(folder / "ca.key", _pem(authority), secret=True)
    _write(folder / "ca.crt", root.public_bytes(serialization.Encoding.PEM))
    _write(folder / "server.key", _pem(server), secret=True)
    _write(folder / "server.crt", certificate.public_bytes(serialization.Encoding.PEM))
    for name in nodes:
        add_node_key(folder, name)


def add_node_key(folder: Path, name: str) -> None:
    """Write the key pair of one node, in the form that Flower takes."""
    if not name.replace("-", "").isalnum() or (folder / name).exists():
        raise InputError(f"node name {name!r}: allowed are letters, digits and -, and none that exists already")
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(folder / name, private, secret=True)
    _write(folder / f"{name}.pub", public + f" {name}\n".encode())


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str] | None,
) -> x509.Certificate:
    """Sign a certificate: for a server that answers to `hosts`, or the authority's own."""
    now = datetime.now(UTC)
    authority = hosts is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(authority), critical=True)
    )
    if hosts is not None:
        names = x509.SubjectAlternativeName([_host_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(signer, hashes.SHA384())


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not HOST.fullmatch(host):
            raise InputError(f"--host is {host!r}; allowed: a name such as server.example.org, or an address") from None
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
