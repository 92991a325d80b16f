"""A Flower app around xfed: a thin shim, its configuration, an example node, and how to start it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xfed.errors import InputError
from xfed.files import write_text

PROJECT = """\
[project]
name = "xfed-federation"
version = "1.0.0"
description = "Personalized federated learning of early-exit networks"
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = []  # xfed[flower] is installed on the server and on every node

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.flwr.app]
publisher = "xfed"

[tool.flwr.app.components]
serverapp = "federation.server:app"
clientapp = "federation.client:app"

# The settings of `xfed run`, and what a federation needs besides (docs/how-to/federation.md).
[tool.flwr.app.config]
{config}
"""

SERVER = '''\
"""The server of the federation."""

from xfed.flower.server_app import app

__all__ = ["app"]
'''

CLIENT = '''\
"""What a node does for the federation."""

from xfed.flower.client_app import app

__all__ = ["app"]
'''

README = """\
# A federation

Install `xfed[flower]` on the server and on every node. In this folder:

    export FLWR_HOME=$PWD/flower FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
{commands}
    flwr run . federation --stream

The result is the run directory that `federation.out` in `pyproject.toml` names; `xfed show` reads it. If anything
stops, the same `flwr run` continues from the last round.

A node's owner writes `node.yaml`: which data it has, and what may leave it. {advice}
"""

INSECURE = """\
    flower-superlink --insecure --disable-runtime-dependency-installation --database superlink.db --port {port}{host}
    flower-supernode --insecure --superlink {address} --port 9094 --node-config 'folder="nodes/0"'
    flower-supernode --insecure --superlink {address} --port 9095 --node-config 'folder="nodes/1"'"""
INSECURE_ADVICE = """`--insecure` is for one machine only:
across machines, make keys with `xfed flower keys` and use TLS and node authentication."""

SECURE = """\
    flower-superlink --ssl-ca-certfile {keys}/ca.crt --ssl-certfile {keys}/server.crt --ssl-keyfile {keys}/server.key \\
      --enable-supernode-auth --disable-runtime-dependency-installation --database superlink.db --port {port}{host}
    flwr supernode register {keys}/node-0.pub federation
    flwr supernode register {keys}/node-1.pub federation
    flower-supernode --root-certificates {keys}/ca.crt --auth-supernode-private-key {keys}/node-0 \\
      --superlink {address} --port 9094 --node-config 'folder="nodes/0"'
    flower-supernode --root-certificates {keys}/ca.crt --auth-supernode-private-key {keys}/node-1 \\
      --superlink {address} --port 9095 --node-config 'folder="nodes/1"'"""
SECURE_ADVICE = """The keys are those of
`xfed flower keys`: `ca.crt` and its own `node-N` go to each node, the server's stay on the server, `ca.key` offline."""

CONNECTION = """\
[superlink]
default = "federation"

[superlink.federation]
address = "{address}"
{security}
"""

DEFAULTS: dict[str, Any] = {
    "method": "xfed",
    "model": "convnet",
    "convnet.width": 32,
    "rounds": 10,
    "sample": 1.0,
    "epochs": 5,
    "batch-size": 16,
    "lr": 0.05,
    "clients": 100,
    "federation.min-nodes": 2,
    "federation.timeout": 600.0,
    "federation.wait": 600.0,
}


def configuration(out: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give an app's whole configuration: a default of a network that is not the one trained is left out."""
    other = settings.get("model", DEFAULTS["model"]) != DEFAULTS["model"]
    defaults = {name: v for name, v in DEFAULTS.items() if not (other and name.startswith(f"{DEFAULTS['model']}."))}
    return {**defaults, **settings, "federation.out": str(out)}


def write_project(
    folder: Path,
    out: Path,
    settings: Mapping[str, Any] | None = None,
    address: str = "127.0.0.1:8000",
    keys: Path | None = None,
) -> None:
    """Write the app, its configuration and the connection to its SuperLink."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{str(folder)!r} exists already; give another folder for the app")
    config = configuration(out, settings or {})
    lines = "\n".join(f"{_key(name)} = {_toml(value)}" for name, value in config.items())
    write_text(folder / "pyproject.toml", PROJECT.format(config=lines))
    write_text(folder / "federation" / "__init__.py", '"""A federation with xfed."""\n')
    write_text(folder / "federation" / "server.py", SERVER)
    write_text(folder / "federation" / "client.py", CLIENT)
    write_text(folder / "README.md", _readme(address, keys))
    security = "insecure = true" if keys is None else f"root-certificates = {_toml(str(keys / 'ca.crt'))}"
    write_text(folder / "flower" / "config.toml", CONNECTION.format(address=address, security=security))


def _readme(address: str, keys: Path | None) -> str:
    port = address.rpartition(":")[2]
    host = "" if is_loopback(address) else " --host 0.0.0.0"
    commands = (INSECURE if keys is None else SECURE).format(address=address, port=port, host=host, keys=keys)
    return README.format(commands=commands, advice=INSECURE_ADVICE if keys is None else SECURE_ADVICE)


def is_loopback(address: str) -> bool:
    """Tell whether host:port is on this machine alone."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def write_node(folder: Path, **settings: Any) -> None:
    """Write a node's settings."""
    write_text(folder / "node.yaml", yaml.safe_dump(settings, sort_keys=False))


def _key(name: str) -> str:
    return name if name.replace("-", "").replace(".", "").isalnum() else f'"{name}"'


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
