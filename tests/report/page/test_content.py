"""What goes into the page: exact codes, small size, no way out of the data."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bits import vouch
from tests.conftest import tiny
from tests.traces import drawn
from xfed import InputError, open_run, run
from xfed.evaluation.traces import ExitTrace
from xfed.report.assumptions import teacher_weights
from xfed.report.naming import names_of
from xfed.report.page.build import page, write_page
from xfed.report.page.content import GRID, codes


def test_a_code_exceeds_a_place_exactly_where_the_confidence_exceeds_the_threshold() -> None:
    confidence = np.concatenate([np.random.default_rng(1).random(500), GRID, [0.0, 1.0, np.nan]]).astype(np.float32)
    code = codes(confidence)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(code[:, None] > np.arange(len(GRID)), confidence.astype(np.float64)[:, None] > GRID)
    assert GRID[0] == 0
    assert GRID[-1] == 1


def test_page_holds_what_the_run_recorded(tmp_path: Path) -> None:
    found = run(tiny(out=tmp_path / "r", rounds=2), progress=False)
    text = page([found])
    described = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    (shown,) = described["runs"]
    assert shown["mean"] == found.summary().last.mean
    assert shown["costs"]["MACs"] == found.exit_macs
    block = gzip.decompress(base64.b64decode(re.search(r'id="block">(.*?)</script>', text)[1]))  # type: ignore[index]
    where = shown["perClient"][1]
    stored = np.frombuffer(block, np.float32, where["length"], where["start"])
    assert np.array_equal(stored, found.summary().last.accuracies[:, 1].astype(np.float32))
    noted = shown["notes"]["matrices"][0]["weights"]
    weights = np.frombuffer(block, np.uint8, noted["length"], noted["start"]) / 255
    assert np.abs(weights - teacher_weights(found.notes(1))[0].ravel()).max() <= 0.501 / 255


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    one = run(tiny(out=tmp_path / "one", rounds=1), progress=False)
    other = replace(one, experiment=one.experiment.changed(seed=2))
    third = replace(one, experiment=tiny(method="fedper"))
    assert names_of([one, other, third]) == ["xfed, seed 1", "xfed, seed 2", "fedper"]


def test_a_class_name_cannot_end_the_script(tmp_path: Path) -> None:
    found = run(tiny(out=tmp_path / "r", rounds=1), progress=False)
    card = json.loads((tmp_path / "r" / "data.json").read_text())
    card["classes"][0] = "</script><script>alert(1)</script>"
    (tmp_path / "r" / "data.json").write_text(json.dumps(card))
    vouch(tmp_path / "r")
    text = page([open_run(found.path)])
    assert "<script>alert" not in text
    assert "\\u003c/script>\\u003cscript>alert(1)" in text


def test_refusals(tmp_path: Path) -> None:
    found = run(tiny(out=tmp_path / "r", rounds=1), progress=False)
    with pytest.raises(InputError, match=r"the latency table has 2 exits, but run .* has 3"):
        write_page([found], tmp_path / "page.html", [1.0, 2.0])
    shutil.rmtree(tmp_path / "r" / "metrics")
    vouch(tmp_path / "r")
    with pytest.raises(InputError, match="has no evaluation yet"):
        write_page([found], tmp_path / "page.html")


@pytest.mark.slow
def test_fourteen_methods_on_a_hundred_clients_stay_small(tmp_path: Path) -> None:
    """As many samples as AG News has, with calibration samples, and drawn confidences, which compress badly."""
    first = run(
        tiny(
            clients=100, sample=0.1, rounds=1, partition_by="overlapping", samples_per_client=20, out=tmp_path / "0",
            model="resnet18", resnet18={"width": 2, "depth": 1},
        ),
        progress=False,
    )  # fmt: skip
    runs = []
    for number in range(14):
        root = tmp_path / str(number)
        if number:
            shutil.copytree(first.path, root)
        copied = open_run(root)
        for seed, (of, samples) in enumerate((("test", 31_900), ("calibration", 19_140))):
            made: ExitTrace = drawn(samples, 4, seed=2 * number + seed, clients=100)
            made.write(copied.directory.trace(of, 1))  # type: ignore[arg-type]
        vouch(root)
        runs.append(copied)
    assert len(page(runs).encode()) < 6_000_000
