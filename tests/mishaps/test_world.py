"""The world around: full disks, disks that can only be read, outputs that take nothing, alphabets without ±."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bits import differences
from tests.conftest import tiny
from xfed import open_run, run

XFED = f"{sys.executable} -m xfed"
SMALL = "--clients 4 --rounds 3 --engine serial --convnet.width 4 --epochs 1 --eval-every 1"
pytestmark = pytest.mark.slow


def in_namespace(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script that may mount; where that is not permitted, there is nothing to try."""
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    if shutil.which("unshare") is None or tried.returncode:
        pytest.skip("mounting in a namespace of its own is not permitted here")
    return subprocess.run(
        ["unshare", "-m", "bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    done = in_namespace(
        f"""
        mount -t tmpfs -o size=200k none disk
        {XFED} run {SMALL} --out disk/run; echo "first: $?"
        mount -o remount,size=50m disk
        {XFED} resume disk/run > /dev/null; echo "second: $?"
        cp -r disk/run kept
        """,
        tmp_path,
    )
    assert done.stdout.splitlines() == ["first: 1", "second: 0"], done.stderr
    assert "' cannot be used: there is no space left on its disk; free some, or use another disk" in done.stderr
    assert "are kept: 'xfed resume disk/run' continues the run" in done.stderr
    assert "Traceback" not in done.stderr
    settings = {"clients": 4, "rounds": 3, "eval_every": 1, "sample": 0.5, "alpha": 0.3}
    whole = run(tiny(out=tmp_path / "whole", **settings), progress=False)
    assert differences(whole, open_run(tmp_path / "kept")) == []


def test_a_disk_that_can_only_be_read(tmp_path: Path) -> None:
    run(tiny(out=tmp_path / "disk" / "run", rounds=1), progress=False)
    done = in_namespace(
        f"""
        mount --bind disk disk && mount -o remount,ro,bind disk
        {XFED} show disk/run > /dev/null; echo "show: $?"
        {XFED} check disk/run > /dev/null; echo "check: $?"
        {XFED} run {SMALL} --out disk/new; echo "run: $?"
        {XFED} resume disk/run --rounds 2; echo "resume: $?"
        {XFED} calibrate disk/run --budget 60%; echo "calibrate: $?"
        """,
        tmp_path,
    )
    codes = [line for line in done.stdout.splitlines() if ": " in line]
    assert codes == ["show: 0", "check: 0", "run: 1", "resume: 1", "calibrate: 1"], done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("xfed:")]
    only_read = "cannot be used: its disk can only be read; use a folder on another one"
    assert told == [
        f"xfed: 'disk/new' {only_read}",
        f"xfed: 'disk/run/.lock' {only_read}",
        f"xfed: 'disk/run/policies' {only_read}",
    ]


def test_an_output_that_takes_nothing(tmp_path: Path) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("there is no /dev/full here")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*XFED.split(), "methods"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "xfed: the output cannot be used: there is no space left on its disk; free some, or use another disk\n"
    )


def test_a_reader_that_has_had_enough(tmp_path: Path) -> None:
    made = run(tiny(out=tmp_path / "run", rounds=1), progress=False)
    command = f"{XFED} show {made.path} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(made.path))
    assert done.stderr == ""


def test_an_alphabet_without_plus_minus(tmp_path: Path) -> None:
    made = run(tiny(out=tmp_path / "run", rounds=1), progress=False)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "200"}
    command = [*XFED.split(), "show", str(made.path)]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    accuracy = made.summary().last
    assert f"{100 * accuracy.mean:.2f} +- {100 * accuracy.std:.2f}".encode() in done.stdout
    header, rule, *rows = done.stdout.decode("ascii").splitlines()[1:5]
    assert set(rule) == {"-", "+"}
    assert {len(line) for line in (header, *rows)} == {len(rule)}, "columns stand below each other"
