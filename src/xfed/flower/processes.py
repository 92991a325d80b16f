"""Flower's own programs as processes of ours, on loopback: started with what they need, ended by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xfed.errors import ClientError

LOOPBACK = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def listening(port: int) -> bool:
    """Tell whether somebody answers on a port."""
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


@dataclass
class Programs:
    """Processes that were started here, each with its children in a group of its own and a log file."""

    folder: Path
    home: Path
    """Flower's own folder, with the connections."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What Flower's programs are started with: no telemetry, no installation of packages."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {**os.environ, **QUIET, "FLWR_HOME": str(self.home), "PATH": path, "OMP_NUM_THREADS": "1"}

    def start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of the programs that are installed beside this Python."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(Path(sys.executable).parent / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        return self.running[name]

    def call(self, program: str, *arguments: str, seconds: float = 120) -> str:
        """Run a program to its end and give what it printed."""
        command = [str(Path(sys.executable).parent / program), *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode:
            raise ClientError(f"{program} {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def end(self, name: str, how: signal.Signals = signal.SIGTERM, seconds: float = 10) -> None:
        """End one program and its children; one that does not listen is killed."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what the program left of its own children
        process.wait()

    def end_all(self) -> None:
        """End everything, in the opposite order."""
        for name in reversed(list(self.running)):
            self.end(name)

    def wait_for_port(self, name: str, port: int, seconds: float = 60) -> None:
        """Wait until a program answers."""
        deadline = time.monotonic() + seconds
        while not listening(port):
            if self.running[name].poll() is not None or time.monotonic() > deadline:
                raise ClientError(f"{name} did not start; see {self.folder / f'{name}.log'}")
            time.sleep(0.2)


def security(keys: Path | None, side: str, node: str = "") -> Sequence[str]:
    """Give the options for TLS and node authentication, or for none of it."""
    if keys is None:
        return ["--insecure"]
    if side == "server":
        files = ["--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt"]
        files += ["--ssl-keyfile", keys / "server.key", "--enable-supernode-auth"]
        return list(map(str, files))
    return ["--root-certificates", str(keys / "ca.crt"), "--auth-supernode-private-key", str(keys / node)]
