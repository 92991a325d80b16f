"""`xfed-runtime-serve BUNDLE`, `python -m xfed_runtime.serving BUNDLE` and `xfed serve BUNDLE`: one command."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

from xfed_runtime import FORMATS
from xfed_runtime.serving import ServingError

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def main(arguments: Sequence[str] | None = None, program: str = "xfed-runtime-serve") -> int:
    """Serve until interrupted; give the exit code: 2 for bad input, told in one sentence."""
    try:
        serve(sys.argv[1:] if arguments is None else arguments, program)
    except ServingError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    return 0


def serve(arguments: Sequence[str], program: str) -> None:
    """Serve until interrupted, as the arguments say."""
    options = parser(program).parse_args(arguments)
    try:
        from xfed_runtime import BundleError, Device
        from xfed_runtime.device import DeviceError
        from xfed_runtime.serving.app import build_app
        from xfed_runtime.serving.generations import Generations
        from xfed_runtime.serving.guard import Doors
        from xfed_runtime.serving.limits import Limits
        from xfed_runtime.serving.listening import listen, server_of
        from xfed_runtime.serving.service import Service, Setup
        from xfed_runtime.serving.tokens import Tokens
    except ModuleNotFoundError as error:
        raise ServingError(f"serving needs {error.name}; install it with: pip install 'xfed-runtime[serve]'") from None
    if bool(options.tls_cert) != bool(options.tls_key):
        raise ServingError("TLS needs both --tls-cert and --tls-key")
    try:
        device = None if options.device is None else Device.read(options.device)
        limits = Limits(body=options.max_body, networks=options.networks)
        setup = Setup(
            client=options.client,
            format=options.format,
            threads=options.threads,
            providers=tuple(options.provider or Setup.providers),
            sharing=options.sharing,
            digest=options.digest,
            device=device,
            batch_wait_ms=options.batch_wait_ms,
            limits=limits,
        )
        tokens = Tokens(options.token_file)
        generations = Generations(lambda: Service(options.bundle, setup))
    except (BundleError, DeviceError) as error:
        raise ServingError(str(error)) from None
    try:
        with listen(options.host, options.port) as opened:
            app = build_app(generations, Doors(tokens, allowed_hosts(options.host, options.allow_host)))
            server = server_of(app, limits, options.tls_cert, options.tls_key)
            for warning in warnings(options.host, tokens.required, server.config.is_ssl):
                print(f"{program}: {warning}", file=sys.stderr)
            name = f"[{options.host}]" if ":" in options.host else options.host
            address = f"http{'s' * server.config.is_ssl}://{name}:{opened.getsockname()[1]}"
            print(f"serving {options.bundle} on {address}, described at {address}/docs; Ctrl-C ends it", flush=True)
            with ending_in_order(), suppress(KeyboardInterrupt):
                server.run(sockets=[opened])
    finally:
        generations.close()
    print("stopped")


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Make both signals plain interrupts: uvicorn passes them on after it has ended, and the bundle's copy must go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are sentences."""

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong; the caller ends the program."""
        raise ServingError(message.removeprefix("argument ").replace(": is ", " is ", 1))


def parser(program: str) -> argparse.ArgumentParser:
    """Declare the options, once for all ways to start the command."""
    made = _Parser(
        prog=program,
        description="Answer requests over HTTP, each within its own policy, budget or deadline.",
        formatter_class=_Defaults,
    )
    add = made.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="folder that 'xfed export' wrote; read again at a reload")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_whole(0, 65535), default=8000, help="port to listen on; 0 takes a free one")
    add("--client", type=_whole(0), help="who answers where a request names no client")
    add("--threads", type=_whole(1), default=1, help="threads per input")
    add("--format", default=FORMATS[0], metavar="|".join(FORMATS), help="form of the graphs")
    add("--provider", action="append", metavar="name", help="what ONNX Runtime computes on; the CPU unless given")
    add(
        "--sharing",
        action="store_true",
        help="keep what clients have in common once in memory, for some time an answer",
    )
    add("--digest", metavar="hex", help="serve this very bundle and no other, by the digest that 'xfed verify' shows")
    add("--device", type=Path, metavar="path", help="latencies of this device, for requests with deadlines")
    add("--max-body", type=_whole(1), default=10_000_000, metavar="bytes", help="largest request")
    add("--networks", type=_whole(1), default=8, metavar="n", help="clients' networks kept in memory")
    add(
        "--batch-wait-ms",
        type=_milliseconds,
        default=0.0,
        metavar="ms",
        help="how long a request waits for others to be computed with; with 0 only those that wait anyway are",
    )
    add("--token-file", type=Path, metavar="path", help="bearer tokens, and for each whom it may ask for")
    add("--allow-host", action="append", metavar="name", help="a name the server may be called by; may be repeated")
    add("--tls-cert", type=Path, metavar="path", help="certificate chain (PEM): serve HTTPS")
    add("--tls-key", type=Path, metavar="path", help="the certificate's private key (PEM)")
    return made


class _Defaults(argparse.HelpFormatter):
    """Shows the default where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = action.default not in (None, argparse.SUPPRESS)
        return f"{action.help} (default: %(default)s)" if shown else action.help


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= (int(text) if most is None else most):
            allowed = f"whole numbers from {least}" + (f" to {most}" if most is not None else "")
            raise argparse.ArgumentTypeError(f"is {text!r}; allowed: {allowed}")
        return int(text)

    return number


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"is {text!r}; allowed: 0 to 1000")
    return value


def allowed_hosts(host: str, named: Sequence[str] | None) -> frozenset[str] | None:
    """Give the names the server may be called by; None for any.

    On loopback only its own names, so that a page from elsewhere cannot reach the server by a name that it makes
    point here. Beyond, what is named; where nothing is named, any.
    """
    if named:
        return frozenset(name.lower() for name in (*named, *LOOPBACK))
    return frozenset((host.lower(), *LOOPBACK)) if is_loopback(host) else None


def is_loopback(host: str) -> bool:
    """Tell whether an address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def warnings(host: str, tokens: bool, tls: bool) -> list[str]:
    """Say what is dangerous about the way the server is started."""
    if is_loopback(host):
        return []
    said = []
    if not tokens:
        said.append(f"warning: anyone who reaches {host} may ask for every client's network; --token-file changes that")
    if not tls:
        said.append("warning: requests, answers and tokens cross the network unencrypted; --tls-cert changes that")
    return said
