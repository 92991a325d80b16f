"""Putting the page together: style, scripts, data and licence in one file."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template

from xfed.errors import InputError
from xfed.files import write_text
from xfed.report.naming import names_of
from xfed.report.page.content import content
from xfed.report.page.packing import Packing
from xfed.runs.reader import Run

HOME = Path(__file__).parent
SCRIPTS = ("data.js", "simulate.js", "drawing.js", "tradeoff.js", "sections.js", "main.js")


def write_page(runs: Sequence[Run], path: Path, latencies: Sequence[float] | None = None) -> None:
    """Write one page about runs; `latencies` (ms by exit) offer costs on a device beside MACs."""
    for run in runs:
        if not (run.records() and run.evaluations()):
            raise InputError(f"run {str(run.path)!r} has no evaluation yet; 'xfed resume {run.path}' continues it")
        exits = len(run.exit_macs)
        if latencies is not None and len(latencies) != exits:
            raise InputError(f"the latency table has {len(latencies)} exits, but run {str(run.path)!r} has {exits}")
    write_text(path, page(runs, latencies))


def page(runs: Sequence[Run], latencies: Sequence[float] | None = None) -> str:
    """Give the page as text."""
    packing = Packing()
    described = content(runs, names_of(runs), packing, latencies)
    described["version"] = version("xfed")
    plain = json.dumps(described, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    vendored = HOME / "vendor"
    parts = {
        "style": _read(vendored / "uPlot.min.css") + _read(HOME / "page.css"),
        "licence": html.escape(_read(vendored / "uPlot.LICENSE").strip()),
        "library": _read(vendored / "uPlot.iife.min.js"),
        "script": "\n".join(_read(HOME / name) for name in SCRIPTS),
        "data": plain,
        "block": packing.text(),
    }
    return Template(_read(HOME / "page.html")).substitute(parts)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
