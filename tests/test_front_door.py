"""`import xfed` gives what people write with, and the pages that say so are right."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import xfed
from tests.conftest import TINY
from xfed.protocol.algorithm import Algorithm

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "how-to" / "new-method.md"


def test_every_name_is_there() -> None:
    for name in xfed.__all__:
        assert getattr(xfed, name) is not None
    assert set(xfed.__all__) <= set(dir(xfed))
    with pytest.raises(AttributeError, match="nothing"):
        _ = xfed.nothing


def test_the_page_names_every_hook() -> None:
    inherited = set(dir(xfed.protocol.algorithm.Component))
    hooks = {name for name, _ in inspect.getmembers(Algorithm) if not name.startswith("_")} - inherited
    derived = {"averaged", "travelling"}
    table = set(re.findall(r"`(\w+)", PAGE.read_text(encoding="utf-8")))
    assert hooks - derived <= table


def test_the_page_names_every_room() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    package = Path(xfed.__file__).parent
    rooms = {path.name for path in package.iterdir() if path.is_dir() and not path.name.startswith("_")}
    missing = {room for room in rooms if f"`{room}`" not in text}
    assert not missing


def test_comparisons_are_data_frames(tmp_path: Path) -> None:
    settings = {**TINY, "rounds": 1}
    compared = xfed.compare(["fedper", "local"], seeds=(1, 2), out=tmp_path, progress=False, **settings)
    table = compared.table()
    assert table["method"].tolist() == ["fedper", "local"]
    assert table["seeds"].tolist() == [2, 2]
    lasts = [run.summary().last.mean for run in compared.runs if run.experiment.method == "local"]
    assert table["last"][1] == pytest.approx(sum(lasts) / 2)
    clients = compared.clients()
    assert len(clients) == 4 * 6
    again = xfed.compare(["fedper"], out=tmp_path, progress=False, **settings)
    assert again.runs[0].path == compared.runs[0].path, "a finished run is reused"


def test_runs_of_other_code_are_reused_only_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**TINY, "rounds": 1}
    first = xfed.compare(["local"], out=tmp_path, progress=False, **settings).runs[0]
    for module in ("xfed.comparison", "xfed.environment"):
        monkeypatch.setattr(f"{module}.code_digest", lambda: "f" * 16)
    accepted = xfed.compare(["local"], out=tmp_path, progress=False, reuse="any", **settings)
    assert accepted.runs[0].path == first.path
    fresh = xfed.compare(["local"], out=tmp_path, progress=False, **settings).runs[0]
    assert fresh.path != first.path
    from xfed.report.rows import collect
    from xfed.report.tables import notes

    told = notes(collect([first, fresh]), [first, fresh])
    assert f"The runs are of different code ({first.environment()['code']}: local" in told.replace("ffff", "ffff")


def test_calibrate_from_python(tmp_path: Path) -> None:
    made = xfed.run(xfed.Experiment(**{**TINY, "rounds": 1}, out=tmp_path / "run"), progress=False)
    chosen = xfed.calibrate(tmp_path / "run", budget=0.7)
    assert sorted(path.name for path in made.directory.policies.glob("*.json"))
    assert len(chosen.clients) == 6
    with pytest.raises(xfed.InputError, match="exactly one of budget, latency, deadline, max_drop and risk"):
        xfed.calibrate(made, budget=0.7, risk=0.1)
