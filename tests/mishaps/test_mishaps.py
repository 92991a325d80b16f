"""Every malformed input and every mishap has its own sentence, its exit code, and leaves nothing half done."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import tiny
from tests.mishaps import afterwards, data, plugins, runs, settings
from tests.mishaps.mishap import Mishap
from xfed import Run
from xfed import run as carry_out
from xfed.cli import execute
from xfed.components import unload_plugin
from xfed.runs.directory import RunDirectory

CASES = {
    "settings": settings.CASES,
    "data": data.CASES,
    "plug-ins": plugins.CASES,
    "runs": runs.CASES,
    "afterwards": afterwards.CASES,
}
ALL = [(kind, case) for kind, cases in CASES.items() for case in cases]
TOLD: dict[str, tuple[str, str]] = {}
"""What was expected and what was told of the mishaps so far."""
PLUGIN = "import xfed\n@xfed.method('mishap')\nclass Mishap(xfed.Algorithm):\n    travels = xfed.Parts.MODEL\n"


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, the same as if interrupted, and one with a plug-in, interrupted."""
    root = tmp_path_factory.mktemp("examples")
    (root / "mine.py").write_text(PLUGIN)
    carry_out(tiny(out=root / "run", rounds=3, eval_every=1), progress=False)
    carry_out(tiny(out=root / "mine", rounds=1, plugin=[root / "mine.py"], method="mishap"), progress=False)
    shutil.copytree(root / "run", root / "cut")
    for name in ("cut", "mine"):
        interrupt(root / name)
    return root


def interrupt(path: Path) -> None:
    """Make a run look as if it had ended before its last words."""
    directory = RunDirectory(path)
    directory.finished_file.unlink()
    index = directory.index.get()
    assert index is not None
    directory.index.write(replace(index, finished=None))


@pytest.fixture
def meet(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Mishap], tuple[int, str]]:
    """Bring a mishap about, and give the exit code and all that was told."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def meeting(case: Mishap) -> tuple[int, str]:
        place = tmp_path / "place"
        shutil.copytree(examples, place) if case.runs else place.mkdir()
        monkeypatch.chdir(place)
        if case.prepare is not None:
            case.prepare(place)
        try:
            code = execute(shlex.split(case.command))
        finally:
            for plugin in place.glob("*.py"):
                with suppress(UnicodeDecodeError, IsADirectoryError):
                    unload_plugin(plugin.read_text(encoding="utf-8"))
        told = capsys.readouterr()
        assert "Traceback" not in told.out, "of a traceback, only that of a plug-in is told"
        return code, told.err + told.out

    return meeting


@pytest.mark.parametrize(("kind", "case"), ALL, ids=[f"{kind}: {case.name}" for kind, case in ALL])
def test_mishap(kind: str, case: Mishap, meet: Callable[[Mishap], tuple[int, str]]) -> None:
    code, told = meet(case)
    assert re.search(case.sentence, told), told
    assert code == case.code, told
    assert "nobody foresaw" not in told, "this sentence says nothing about what happened"
    if code == 2:
        assert told.startswith("xfed: ")
        assert told.count("\n") == 1, "one sentence"
    assert not Path("hacked").exists()
    for other, (sentence, said) in TOLD.items():
        assert not re.search(case.sentence, said), f"what is told of {other!r} would do here as well: too vague"
        assert not re.search(sentence, told), f"what is told here would do of {other!r} as well: too vague"
    TOLD[f"{kind}: {case.name}"] = case.sentence, told


def test_the_corpus_is_large_and_every_case_its_own() -> None:
    assert len(ALL) >= 120
    names = Counter((kind, case.name, case.command) for kind, case in ALL)
    assert max(names.values()) == 1
    sentences = Counter((case.sentence, case.command) for _, case in ALL)
    assert max(sentences.values()) == 1, sentences.most_common(1)


def test_a_whole_run_is_told_to_be_whole(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, state in (("run", "finished after 3 rounds"), ("cut", "interrupted after round 3 of 3")):
        assert execute(["check", str(examples / name)]) == 0
        told = capsys.readouterr().out
        assert state in told
        assert "all that was written is there and as it was written" in told
    assert f"'xfed resume {examples / 'cut'}' continues it" in told


def test_debug_shows_where(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["show", "nowhere", "--debug"]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.strip().splitlines()[-1] == "xfed: 'nowhere' is not a run directory (it has no settings.yaml)"


def test_an_unforeseen_error_is_a_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Run:
        raise LookupError("a bug of ours")

    monkeypatch.setattr("xfed.cli.showing.find_runs", fail)
    assert execute(["show", "x"]) == 1
    told = capsys.readouterr().err
    assert told == (
        "xfed: an error that nobody foresaw: LookupError: a bug of ours; the same command with --debug shows where\n"
    )


def test_an_import_that_was_interrupted_half_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Run:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise RuntimeError("Error calling __set_name__") from interrupt

    monkeypatch.setattr("xfed.cli.showing.find_runs", fail)
    assert execute(["show", "x"]) == 130
    assert capsys.readouterr().err == "xfed: interrupted\n"
