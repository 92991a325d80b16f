"""The table of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.bits import vouch
from xfed import Run
from xfed.report.rows import collect
from xfed.report.tables import cells


def test_seconds_of_training_stand_beside_what_was_computed(train: Callable[..., Run]) -> None:
    run = train()
    # Rounds of 1, 2, 3 and 4 seconds; what evaluations took does not count.
    noted = [replace(r, macs=6_000_000_000, train_seconds=r.round, evaluation_seconds=50.0) for r in run.records()]
    run.directory.write_rounds(noted)
    vouch(run.path)
    header, body = cells(collect([run]), [run])
    place = header.index("GMAC")
    assert header[place + 1] == "s/round"
    assert body[0][place : place + 2] == ["2.00", "2.50"]  # three clients a round
