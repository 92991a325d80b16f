"""`xfed serve`: a bundle behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from xfed.cli.deployment import BUNDLE
from xfed.errors import InputError
from xfed_runtime import FORMATS


def serving_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the command."""
    return [
        click.Command(
            "serve",
            callback=_serve,
            params=[
                BUNDLE,
                click.Option(["--host"], default="127.0.0.1", show_default=True, help="address to listen on"),
                click.Option(
                    ["--port"],
                    type=click.IntRange(0, 65535),
                    default=8000,
                    show_default=True,
                    help="port to listen on; 0 takes a free one",
                ),
                click.Option(["--client"], type=int, help="who answers where a request names no client"),
                click.Option(
                    ["--threads"], type=click.IntRange(1), default=1, show_default=True, help="threads per input"
                ),
                click.Option(["--format"], default=FORMATS[0], metavar="|".join(FORMATS), help="form of the graphs"),
                click.Option(
                    ["--device"],
                    type=Path,
                    metavar="path",
                    help="latencies of this device, for requests with deadlines",
                ),
                click.Option(
                    ["--max-body"],
                    type=click.IntRange(1),
                    default=10_000_000,
                    show_default=True,
                    help="largest request, in bytes",
                ),
                click.Option(
                    ["--networks"],
                    type=click.IntRange(1),
                    default=8,
                    show_default=True,
                    help="clients' networks kept in memory",
                ),
            ],
            help="Answer requests over HTTP, each within its own policy, budget or deadline.",
        )
    ]


def _serve(
    path: Path,
    host: str,
    port: int,
    client: int | None,
    threads: int,
    format: str,
    device: Path | None,
    max_body: int,
    networks: int,
) -> None:
    try:
        from xfed_runtime.serving import ServingError
        from xfed_runtime.serving.app import build_app, listen, server_of
        from xfed_runtime.serving.limits import Limits
        from xfed_runtime.serving.service import Service, Setup
    except ModuleNotFoundError as error:
        raise InputError(f"serving needs {error.name}; install it with: pip install 'xfed[serve]'") from None
    from xfed_runtime import Bundle, BundleError, Device
    from xfed_runtime.device import DeviceError

    try:
        latencies = None if device is None else Device.read(device)
        limits = Limits(body=max_body, networks=networks)
        service = Service(Bundle.open(path), Setup(client, format, threads, latencies, limits))
        opened = listen(host, port)
    except (BundleError, DeviceError, ServingError) as error:
        raise InputError(str(error)) from None
    with opened:
        address = f"http://{f'[{host}]' if ':' in host else host}:{opened.getsockname()[1]}"
        click.echo(f"serving {path} on {address}, described at {address}/docs; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):  # which uvicorn passes on after it has ended in order
            server_of(build_app(service)).run(sockets=[opened])
        click.echo("stopped")
