"""Freed memory stays in the process."""

from __future__ import annotations

import inspect
import platform
import subprocess
import sys

import pytest

from xfed.engines.workers import allocator

PROGRAM = """
import resource

def touch():
    b"x" * 2**26

touch(), touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(keep: bool) -> int:
    """Count the pages that 8 times 64 MB take from the system, in a process of their own."""
    setting = inspect.getsource(allocator) + "assert keep_freed_memory()\n"
    answer = subprocess.run([sys.executable, "-c", setting * keep + PROGRAM], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return int(answer.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_memory_is_taken_from_the_system_once() -> None:
    assert page_faults(keep=False) > 1000, "otherwise there is nothing to gain"
    assert page_faults(keep=True) < 100


def test_a_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert not allocator.keep_freed_memory()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_kept_memory_can_be_handed_back() -> None:
    program = """
assert keep_freed_memory()
held = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
b"x" * 2**26
kept = held()
return_freed_memory()
print(kept - held())
"""
    source = inspect.getsource(allocator)
    answer = subprocess.run([sys.executable, "-c", source + program], capture_output=True, text=True)
    assert int(answer.stdout) > 2**25, answer.stderr
