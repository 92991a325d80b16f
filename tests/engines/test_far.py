"""An engine that shares no folder with the loop ends with the same bits as `serial`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bits import differences
from tests.engines.far import FarEngine
from xfed import Experiment, Run

PLUGIN = '''
from xfed import method
from xfed.algorithms.ditto import Ditto


@method("far-ditto")
class FarDitto(Ditto):
    """Ditto, from a plug-in file that only this side has."""
'''


@pytest.mark.slow
@pytest.mark.parametrize("method", ["xfed", "far-ditto", "fedpac", "depthfl"])
def test_same_bits_through_bytes_alone(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    here = train("here", method=method, plugin=plugin, rounds=3)
    monkeypatch.setattr(Experiment, "engine", lambda experiment: FarEngine(tmp_path / "elsewhere"))
    there = train("there", method=method, plugin=plugin, rounds=3)
    assert not there.directory.client_states.exists(), "a client's state stays where the client is"
    if here.directory.client_states.exists():
        assert there.state_bytes()[0] is None, "its size is not known here"
        shutil.copytree(tmp_path / "elsewhere" / "states", there.directory.client_states)
    assert differences(here, there) == []
