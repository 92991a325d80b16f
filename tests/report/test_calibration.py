"""What a calibration prints: losses weighted as they are guaranteed, and who has no guarantee."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from xfed.calibration.outcomes import Outcome
from xfed.calibration.policies import ClientPolicy
from xfed.calibration.risk import RiskLimit
from xfed.report.calibration import show_guarantees, weighted_loss
from xfed_runtime.policy import Policy


def client(number: int, basis: str, samples: int, disagreement: float, accuracy: float = 0.5) -> ClientPolicy:
    """A client whose test samples say twice the loss of its calibration samples."""
    expected = Outcome(samples, accuracy, accuracy, disagreement, 1.0, (1.0,))
    reported = Outcome(100, accuracy, accuracy, 2 * disagreement, 1.0, (1.0,))
    return ClientPolicy(number, Policy("confidence", threshold=0.5), basis, expected, reported)


CLIENTS = [
    client(0, "per client", 100, 0.02),
    client(1, "per client", 200, 0.04),
    client(2, "pooled", 10, 0.10),
    client(3, "pooled", 30, 0.02),
    ClientPolicy(4, Policy("confidence", threshold=1.0), "none", None, None),
]


def test_losses_are_weighted_as_they_are_guaranteed() -> None:
    limit = RiskLimit(0.05)
    assert weighted_loss(CLIENTS[2:4], "expected", limit, by_samples=True) == pytest.approx((10 * 0.1 + 30 * 0.02) / 40)
    assert weighted_loss(CLIENTS[2:4], "reported", limit, by_samples=True) == pytest.approx((10 * 0.2 + 30 * 0.04) / 40)
    assert weighted_loss(CLIENTS[:2], "expected", limit, by_samples=False) == pytest.approx(0.03)
    assert weighted_loss(CLIENTS[4:], "expected", limit, by_samples=False) is None
    assert weighted_loss(CLIENTS[:1], "expected", RiskLimit(0.05, loss="error"), by_samples=False) == 0.5


def test_a_client_counts_for_those_it_stands_for() -> None:
    three = [replace(each, expected=replace(each.expected, stands_for=3.0)) for each in CLIENTS[:1] if each.expected]
    limit = RiskLimit(0.05)
    found = weighted_loss([*three, CLIENTS[1]], "expected", limit, by_samples=False)
    assert found == pytest.approx((3 * 0.02 + 0.04) / 4)


def test_heading_and_table_say_who_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    show_guarantees(CLIENTS, RiskLimit(0.05))
    text = capsys.readouterr().out
    assert "for each of 2 clients; for 2 clients together; nothing for 1" in text
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()[3:]]
    assert [row[1:] for row in rows] == [
        ["2", "3.00%", "6.00%", "1"],
        ["2", "4.00%", "8.00%", "–"],
        ["1", "–", "–", "–"],
    ]
    assert all(row[0] for row in rows)
