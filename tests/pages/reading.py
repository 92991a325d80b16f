"""Do what a page says, in its order, in an empty folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.blocks import Block
from tests.pages.parsing import BINARIES, check, check_command
from xfed.cli import execute
from xfed.experiment.experiment import ROLES

TRAINING = ("run", "compare", "sweep")
SHELL = re.compile(r"[|<>&;`]|\$\(")
PORT = "8000"
"""Where a page's server listens; here it is another port, that nobody has."""


class Reader:
    """A reader in front of a terminal and a Python prompt, for the length of one page."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture
        self.names: dict[str, Any] = {"__name__": "page"}
        self.port = str(_free_port())
        self.running: list[subprocess.Popen[bytes]] = []

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        if block.save_as:
            Path(block.save_as).parent.mkdir(parents=True, exist_ok=True)
            Path(block.save_as).write_text(block.content, encoding="utf-8")
            check(block)
        elif block.directive == "not run":
            assert block.argument, f"{block} does not say why it is not run"
            check(block)
        elif block.language == "python":
            exec(compile(block.content, str(block), "exec"), self.names)
        elif block.language == "console":
            assert block.commands, f"{block}: no line begins with '$ '"
            for number, command in enumerate(block.commands):
                last = number == len(block.commands) - 1
                self.give(block, command, background=last and block.directive == "background")
        else:
            check(block)

    def give(self, block: Block, command: str, background: bool) -> None:
        """Give one command, and hold it to what the page says of it."""
        command = command.replace(f":{PORT}", f":{self.port}")
        words = shlex.split(command, comments=True)
        if words[:2] == ["pip", "install"]:
            check_command(command)  # the environment of the tests has every extra
            return
        if words[0] == "xfed" and words[1] in TRAINING:
            words += shlex.split(block.argument) if block.directive == "run with" else []
            words += [] if "--engine" in words else ["--engine", "serial"]  # the same bits, without workers to start
        if background:
            self.start([*words, "--port", self.port])
            return
        self.capture.readouterr()
        if words[0] == "xfed" and not SHELL.search(command.partition(" # ")[0]):
            code = execute(words[1:])
            said = "".join(self.capture.readouterr())
        else:
            environment = {**os.environ, "PATH": f"{BINARIES}:{os.environ['PATH']}"}
            done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
            code, said = done.returncode, done.stdout + done.stderr
        expected = int(block.argument) if block.directive == "exit code" else 0
        assert code == expected, f"{block}: {command!r} ended with {code}:\n{said}"
        if block.directive == "exit code":
            shown, flat = " ".join(" ".join(block.output).split()), " ".join(said.split())
            assert shown in flat, f"{block} shows {shown!r}, but {command!r} says {flat!r}"

    def start(self, words: list[str]) -> None:
        """Start what goes on while the page does, and wait until it answers."""
        server = subprocess.Popen([str(BINARIES / words[0]), *words[1:]])
        self.running.append(server)
        for _ in range(600):
            assert server.poll() is None, f"{words} ended with {server.returncode}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(self.port)), 1):
                return
            time.sleep(0.1)
        raise AssertionError(f"{words} does not listen on port {self.port}")

    def leave(self) -> None:
        """End what was started."""
        for process in self.running:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def reading(folder: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Sit down in a folder, and leave it in order."""
    patch.chdir(folder)
    before = set(sys.modules)
    for registry in ROLES.values():  # what a page registers is gone after it
        patch.setattr(registry, "_found", {component.name: component for component in registry})
    reader = Reader(capture)
    try:
        yield reader
    finally:
        reader.leave()
        for name in set(sys.modules) - before:
            if name.startswith("xfed_plugin_"):
                del sys.modules[name]
