"""What a calibration came to, for people: expected and reported, and who is guaranteed what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xfed.calibration.outcomes import Outcome, averaged
from xfed.calibration.policies import Calibration, ClientPolicy
from xfed.calibration.risk import RiskLimit
from xfed.report.terminal import say, show_caption, show_table

KINDS = (("expected", "calibration: expected"), ("reported", "test: reported"))


def show(calibration: Calibration, folder: Path, wide: bool = False) -> None:
    """Print the mean over clients of what was expected and of what the test samples say."""
    full = calibration.costs[-1]
    exits = [f"exit {j + 1}" for j in range(len(calibration.costs))]
    header = ["samples", "clients", "accuracy", "full model", "differs", calibration.unit, "of full", *exits]
    body = []
    for kind, name in KINDS:
        known = [found for found in (getattr(each, kind) for each in calibration.clients) if found is not None]
        if known:
            body.append([name, str(len(known)), *_cells(known, full)])
    ranks = [0, 8, 1, 2, 6, 7, 3, *[4] * len(exits)]
    hidden = show_table(header, body, title=f"{calibration.wish}; mean ± std over clients", ranks=ranks, wide=wide)
    sampled = any(
        found.stands_for != 1 for each in calibration.clients for found in (each.expected, each.reported) if found
    )
    if hidden or sampled:
        show_caption(
            "Evaluated: a sample of clients, each counting for the clients it stands for." * sampled, hidden=hidden
        )
    if not any(each.reported for each in calibration.clients):
        say("the run has no test trace: expected figures only")
    if isinstance(calibration.wish, RiskLimit):
        show_guarantees(calibration.clients, calibration.wish, wide)
    chosen = [
        np.atleast_1d(each.policy.threshold).mean() for each in calibration.clients if each.policy.threshold is not None
    ]
    bases = [each.basis for each in calibration.clients]
    based = ", ".join(f"{basis}: {bases.count(basis)}" for basis in dict.fromkeys(bases))
    if chosen:
        spread = f"{min(chosen):.4g} to {max(chosen):.4g}, median {np.median(chosen):.4g}"
        say(f"thresholds: {spread}; based on: {based}")
    say(f"policies: {folder}")


def show_guarantees(clients: Sequence[ClientPolicy], limit: RiskLimit, wide: bool = False) -> None:
    """Tell who is guaranteed what, and what came of it, weighted as it is guaranteed."""
    groups = {basis: [each for each in clients if each.basis == basis] for basis in ("per client", "pooled", "none")}
    title = (
        f"Guaranteed: {limit}, for each of {len(groups['per client'])} clients; for {len(groups['pooled'])} clients "
        f"together; nothing for {len(groups['none'])}"
    )
    what = "wrong" if limit.loss == "error" else "differs"
    header = ["whose mean", "clients", f"{what}, calibration", "test", f"test > {limit.risk:.2%}"]
    body = []
    for basis, label in (
        ("per client", "each client for itself"),
        ("pooled", "together, by samples"),
        ("none", "no guarantee: full model"),
    ):
        group = groups[basis]
        if group:
            rates = [weighted_loss(group, kind, limit, by_samples=basis == "pooled") for kind, _ in KINDS]
            above = sum(_loss(each.reported, limit) > limit.risk for each in group if each.reported is not None)
            cells = ["–" if rate is None else f"{rate:.2%}" for rate in rates]
            body.append([label, str(len(group)), *cells, str(above) if basis == "per client" else "–"])
    show_table(header, body, title=title, wide=wide)


def weighted_loss(group: Sequence[ClientPolicy], kind: str, limit: RiskLimit, by_samples: bool) -> float | None:
    """Average a loss over clients, each by the clients it stands for or by its number of calibration samples."""
    known = [(found, each.weight) for each in group if (found := getattr(each, kind)) is not None]
    rows = [(_loss(found, limit), weight if by_samples else found.stands_for) for found, weight in known]
    rows = [(rate, weight) for rate, weight in rows if weight]
    if not rows:
        return None
    rates, weights = zip(*rows, strict=True)
    return float(np.average(rates, weights=weights))


def _loss(found: Outcome, limit: RiskLimit) -> float:
    return 1 - found.accuracy if limit.loss == "error" else found.disagreement


def _cells(found: Sequence[Outcome], full: float) -> list[str]:
    mean = averaged(found)
    squares = [(each.accuracy - mean.accuracy) ** 2 for each in found]
    std = np.sqrt(np.average(squares, weights=[each.stands_for for each in found]))
    return [
        f"{mean.accuracy:.2%} ± {100 * std:.2f}",
        f"{mean.full_accuracy:.2%}",
        f"{mean.disagreement:.2%}",
        f"{mean.cost:,.0f}" if full >= 1000 else f"{mean.cost:.3g}",
        f"{mean.cost / full:.1%}",
        *(f"{share:.1%}" for share in mean.shares),
    ]
