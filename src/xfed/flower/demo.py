"""A whole federation on this machine: a SuperLink and some SuperNodes on loopback, digits dealt out among them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xfed.errors import ClientError, InputError
from xfed.flower.keys import make_keys
from xfed.flower.processes import LOOPBACK, Programs, free_port, security
from xfed.flower.project import configuration, write_node, write_project
from xfed.flower.server_app import settings_from
from xfed.runs.reader import Run, open_run

CONNECTION = "federation"
ASK_SECONDS = 15.0
"""Between two questions how the run is; each costs a process."""


@dataclass
class Demo:
    """Folders, ports and processes of a federation on loopback; also what tests disturb."""

    folder: Path
    clients: int
    secure: bool
    settings: Mapping[str, Any]
    """Of the app, as in its configuration."""
    data: Mapping[str, Any]
    """Of the nodes: what is dealt out among them."""

    def __post_init__(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise InputError(f"{str(self.folder)!r} exists already; give another folder for the demo")
        self.folder = self.folder.absolute()
        self.out = self.folder / "run"
        self.settings = {"clients": self.clients, "federation.min-nodes": self.clients, **self.settings}
        settings_from(configuration(self.out, self.settings))  # what the ServerApp would refuse is refused here
        self.app = self.folder / "app"
        self.keys = self.folder / "keys" if self.secure else None
        self.port = free_port()
        self.programs = Programs(self.folder / "logs", self.app / "flower")

    def __enter__(self) -> Demo:
        names = [f"node-{number}" for number in range(self.clients)]
        if self.keys is not None:
            make_keys(self.keys, [LOOPBACK, "localhost"], names)
        write_project(self.app, self.out, self.settings, f"{LOOPBACK}:{self.port}", self.keys)
        for number in range(self.clients):
            data = {"dataset": "digits", "clients": self.clients, **self.data}
            write_node(self.node(number), data=data, client=number)
        return self

    def __exit__(self, *_: object) -> None:
        self.programs.end_all()

    def node(self, number: int) -> Path:
        """Name the folder of a node."""
        return self.folder / "nodes" / str(number)

    def start_server(self) -> None:
        """Start the SuperLink and, where nodes must show a key, register theirs."""
        database = str(self.folder / "superlink.db")
        arguments = ["--host", LOOPBACK, "--port", str(self.port), "--database", database]
        self.programs.start(
            "superlink",
            "flower-superlink",
            *security(self.keys, "server"),
            *arguments,
            "--disable-runtime-dependency-installation",
        )
        self.programs.wait_for_port("superlink", self.port)

    def register(self, number: int) -> None:
        """Make a node's public key known to the SuperLink."""
        if self.keys is not None:
            key = str(self.keys / f"node-{number}.pub")
            self.programs.call("flwr", "supernode", "register", key, CONNECTION)

    def start_node(self, number: int, keys: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a SuperNode."""
        return self.programs.start(
            f"node-{number}",
            "flower-supernode",
            *security(keys or self.keys, "node", f"node-{number}"),
            "--superlink",
            f"{LOOPBACK}:{self.port}",
            "--host",
            LOOPBACK,
            "--port",
            str(free_port()),
            "--node-config",
            f'folder="{self.node(number)}"',
        )

    def start(self) -> None:
        """Start everything but the run."""
        self.start_server()
        for number in range(self.clients):
            self.register(number)
            self.start_node(number)

    def submit(self) -> None:
        """Start the run, or continue it."""
        self.programs.call("flwr", "run", str(self.app), CONNECTION)

    def status(self) -> tuple[str, str]:
        """Ask the SuperLink how its latest run is: in a word, and what it says of it."""
        listed = json.loads(self.programs.call("flwr", "list", CONNECTION, "--format", "json"))
        latest = max(listed["runs"], key=lambda run: str(run["pending-at"]))
        return str(latest["status"]), str(latest["status-details"])

    def wait(self, seconds: float, watch: Callable[[Run | None], object] = lambda _: None) -> Run:
        """Wait until the run is finished; `watch` sees it as it grows."""
        deadline = time.monotonic() + seconds
        ask = time.monotonic() + ASK_SECONDS
        while time.monotonic() < deadline:
            run = self._run()
            watch(run)
            if run is not None and run.finished:
                return run
            if self.programs.running["superlink"].poll() is not None:
                raise ClientError(f"the SuperLink ended; see {self.folder / 'logs'}")
            if time.monotonic() > ask:
                status, details = self.status()
                run = self._run()
                if status.startswith("finished") and not (run and run.finished):
                    raise ClientError(f"the run of the federation is {status}: {details}")
                ask = time.monotonic() + ASK_SECONDS
            time.sleep(0.5)
        raise ClientError(f"the federation did not finish within {seconds:g} s; see {self.folder / 'logs'}")

    def _run(self) -> Run | None:
        return open_run(self.out) if (self.out / "settings.yaml").is_file() else None
