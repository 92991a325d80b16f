"""Shared memory that is too small: nothing dies of a bus error, and the bits are the same."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from tests.engines.workers.test_mailbox import state
from xfed.data.dataset import datasets
from xfed.engines.workers import segments
from xfed.engines.workers.mailbox import Inbox, Outbox

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from tests.bits import differences
from tests.conftest import tiny
from xfed import run

out = Path(sys.argv[1])
wide = {"convnet": {"width": 64}, "rounds": 2}
undisturbed = run(tiny(out=out / "serial", **wide), progress=False)
small = run(tiny(out=out / "small", engine="processes", workers=2, **wide), progress=False)
print(differences(undisturbed, small))
"""


def isolated(size: str) -> list[str]:
    """What runs a command with a /dev/shm of its own."""
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]


def require_isolation() -> None:
    try:
        subprocess.run([*isolated("1m"), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", b"") or str(error).encode()
        pytest.skip(f"no /dev/shm of its own is permitted here: {reason.decode().strip()}")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["64k", "1m"])
def test_a_run_in_a_small_shared_memory(tmp_path: Path, size: str) -> None:
    """64 kB hold neither samples nor messages, 1 MB holds the samples of digits alone."""
    require_isolation()
    command = [*isolated(size), sys.executable, "-c", PROGRAM, str(tmp_path)]
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has few letters
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "TMPDIR": short})
        assert done.returncode == 0, done.stderr
        assert not list(Path(short).glob("xfed-*")), "no file is left behind"
    assert done.stdout.strip() == "[]"
    assert done.stderr.count("/dev/shm has too little room") == 1


@pytest.fixture
def no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(segments, "_reserve", lambda path, size: False)
    monkeypatch.setattr(segments, "_free", lambda: 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    segments._say_once.cache_clear()
    return tmp_path


def test_words_go_through_files(no_room: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = set(os.listdir("/dev/shm"))
    outbox, inbox = Outbox(), Inbox()
    large = torch.rand(100_000)
    [read] = inbox.read(outbox.put([state(0, {"a": large})]), copy=True)
    assert torch.equal(read.tensors.tensors["a"], large)
    [again] = inbox.read(outbox.put([state(0, {"a": large + 1})]), copy=True)
    assert torch.equal(again.tensors.tensors["a"], large + 1)
    assert list(no_room.iterdir()) == [], "the receiver removed the name"
    assert {name for name in os.listdir("/dev/shm") if name.startswith(f"xfed-{os.getpid()}-")} <= before
    outbox.close()
    inbox.close()
    outbox.put([state(0, {"a": large})])
    assert len(list(no_room.iterdir())) == 1
    outbox.close()
    assert list(no_room.iterdir()) == [], "and so does the sender, of what nobody read"
    assert len(caplog.messages) == 1
    assert str(no_room) in caplog.messages[0]


def test_samples_go_through_a_file(no_room: Path) -> None:
    digits = datasets.get("digits")().load()
    with ExitStack() as until:
        shared = segments.share_samples(digits, until)
        assert shared.reopen is not None
        opened = shared.reopen()
        assert torch.equal(opened.inputs, digits.inputs)
        assert torch.equal(opened.labels, digits.labels)
        assert opened.compute_checksum() == digits.checksum() == opened.checksum()
        assert (opened.classes, opened.scale, opened.mean) == (digits.classes, digits.scale, digits.mean)
    assert list(no_room.iterdir()) == []


def test_pages_are_taken_before_anyone_writes(tmp_path: Path) -> None:
    segment = segments.create_segment(1 << 20)
    try:
        blocks = os.stat(segments.SHARED_MEMORY / segment.name).st_blocks
        assert blocks * 512 >= 1 << 20
    finally:
        segment.unlink()
        segment.close()
