"""One table, three formats, spreads over clients and seeds apart."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from xfed.report.sheet import Number, Sheet, over_seeds

SHEET = Sheet(
    "Accuracy & cost",
    ["method", "ours", "published"],
    [["fed_avg", Number(12.3456, 1.5, 0.25), Number(49.46, 14.85)], ["a|b", Number(7.0), None]],
    "10 % of 5 × 3.",
)


def test_markdown() -> None:
    assert SHEET.markdown().split("\n") == [
        "## Accuracy & cost",
        "",
        "| method | ours | published |",
        "| --- | ---: | ---: |",
        "| fed_avg | 12.35 ± 1.50 (seeds ± 0.25) | 49.46 ± 14.85 |",
        r"| a\|b | 7.00 |  |",
        "",
        "10 % of 5 × 3.",
        "",
    ]


def test_csv_keeps_all_digits_and_spreads_apart(tmp_path: Path) -> None:
    md, comma, tex = SHEET.write(tmp_path / "table")
    assert (md.suffix, tex.suffix) == (".md", ".tex")
    with comma.open(encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "method": "fed_avg", "ours": "12.3456", "ours, std over clients": "1.5", "ours, std over seeds": "0.25",
        "published": "49.46", "published, std over clients": "14.85",
    }  # fmt: skip
    assert second["ours, std over clients"] == second["published"] == ""


def test_latex_escapes() -> None:
    text = SHEET.latex()
    assert r"\caption{Accuracy \& cost. 10 \% of 5 $\times$ 3.}" in text
    assert r"fed\_avg & 12.35 $\pm$ 1.50 (seeds $\pm$ 0.25) & 49.46 $\pm$ 14.85 \\" in text
    assert r"\begin{tabular}{lrr}" in text


def test_over_seeds() -> None:
    number = over_seeds([70.0, 74.0, 75.0], [10.0, 11.0, 12.0])
    assert (number.value, number.clients) == (73.0, 11.0)
    assert number.seeds == pytest.approx(np.sqrt((9 + 1 + 4) / 2))
    assert over_seeds([70.0], [10.0]).seeds is None
