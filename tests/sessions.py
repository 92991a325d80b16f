"""Commands in sessions of their own, with everything they start, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")


class Session:
    """A command, and whatever it starts: found by the number of their session, in /proc."""

    def __init__(self, arguments: Sequence[str], **popen: Any) -> None:
        self._told = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.main = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=self._told,
            start_new_session=True,
            preexec_fn=_default_signals,
            **popen,
        )
        self._seen = {self.main.pid}

    def processes(self) -> dict[int, str]:
        """Give what runs in the session: command lines by process number."""
        found = in_session(self.main.pid)
        self._seen |= found.keys()
        return found

    def workers(self) -> list[int]:
        """Give the worker processes."""
        return family(self.main.pid)[1]

    def fork_server(self) -> int | None:
        """Give the fork server, where there is one."""
        return family(self.main.pid)[0]

    def segments(self) -> list[str]:
        """Name the shared memory that any process of the session made and nobody freed."""
        return segments_of(self._seen)

    def end(self, seconds: float) -> str:
        """Wait for the end of the command, and give what it said; whatever else still holds its output may go on."""
        self.main.wait(seconds)
        self._told.seek(0)
        return self._told.read()

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to be true, as long as the command runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.main.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def wait_until_gone(self, seconds: float) -> bool:
        """Wait until nothing of the session runs any more."""
        deadline = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def in_session(session: int) -> dict[int, str]:
    """Give the command lines of what runs in a session, by process number; what has ended is left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # ended just now
            continue
    return found


def family(main: int) -> tuple[int | None, list[int]]:
    """Find the fork server and the workers of a command that leads a session; workers outlive their fork server."""
    forked = [pid for pid, command in in_session(main).items() if "multiprocessing.forkserver" in command]
    server = next((pid for pid in forked if _parent(pid) == main), None)
    return server, [pid for pid in forked if pid != server]


def segments_of(pids: Iterable[int]) -> list[str]:
    """Name the shared memory that these processes made and nobody freed."""
    made = tuple(f"xfed-{pid}-" for pid in pids)
    return sorted(name for name in os.listdir(SHARED_MEMORY) if name.startswith(made))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _default_signals() -> None:
    """As in a terminal: a shell's background jobs ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
