"""While strangers' bytes are read, no code of theirs runs, nothing is written elsewhere, and memory is bounded."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect"}
ROOM = 2**30
"""What one test may need beyond what the process has already."""
_watched: list[str] | None = None
_home = ""


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    if event in FORBIDDEN or (event == "pickle.find_class" and not str(arguments[0]).startswith("numpy")):
        _watched.append(f"{event} {arguments!r:.100}")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        path = _home if isinstance(arguments[0], int) else str(arguments[0])  # a number is of a file opened already
        if not path.startswith((_home, "/dev/", "/proc/")) and ".hypothesis" not in path:
            _watched.append(f"opened {path} to write")


sys.addaudithook(_listen)


@pytest.fixture(autouse=True)
def safely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Watch what is done, and limit what it may take."""
    global _watched, _home
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    _watched, _home = [], str(tmp_path)
    try:
        yield
        done = _watched
    finally:
        _watched = None
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert done == []
