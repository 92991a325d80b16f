"""Building the compiled kernels: once, whole, and not at all without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.compiled import needs_compiler
from xfed.kernels.library import SOURCES, UnavailableError, identity, library

SHOW = "from xfed.kernels.library import library; found = library(); print(found.path, found.digest, found.lanes)"


@pytest.fixture
def afresh() -> Iterator[None]:
    """Let the library be looked for anew, before and after."""
    library.cache_clear()
    yield
    library.cache_clear()


@needs_compiler
@pytest.mark.slow
def test_two_processes_at_once_build_one_library(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", SHOW], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = {process.communicate(timeout=120)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(answers) == 1
    path = Path(answers.pop().split()[0])
    assert list((tmp_path / "xfed" / "kernels").iterdir()) == [path]


@needs_compiler
@pytest.mark.slow
@pytest.mark.usefixtures("afresh")
def test_a_library_is_built_once_and_named_by_what_decides_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = library()
    built = first.path.stat().st_mtime_ns
    library.cache_clear()
    assert library() == library()
    assert library().digest == first.digest
    assert first.path.stat().st_mtime_ns == built
    sources = shutil.copytree(SOURCES, tmp_path / "native")
    (sources / "maps.h").write_text((SOURCES / "maps.h").read_text() + "\n// another version\n")
    monkeypatch.setattr("xfed.kernels.library.SOURCES", sources)
    library.cache_clear()
    assert library().digest != first.digest


@pytest.mark.usefixtures("afresh")
def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UnavailableError, match=r"no C\+\+ compiler was found \(c\+\+, g\+\+, clang\+\+\)"):
        library()
    assert identity() is None


@pytest.mark.usefixtures("afresh")
def test_a_compiler_that_fails_is_named_with_its_first_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(UnavailableError, match="fails: it is broken"):
        library()


@needs_compiler
@pytest.mark.usefixtures("afresh")
def test_a_cache_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UnavailableError, match=r"cannot be kept in .*file/xfed/kernels"):
        library()
