"""What the paper states, each value with its place. Figures carry no numbers in the source, only the text does."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xfed.report.sheet import Number

TABLES = Path(__file__).with_name("published.csv")

MATCHING_SECONDS = {10: 0.02, 20: 0.02, 50: 0.05, 100: 0.48, 200: 1.43}
"""Table 4: seconds of teacher matching, by the number of sampled clients."""

OWN_WEIGHT = 0.8
"""Section 5.3.4: the weight of a client's own teacher, for all clients approximately."""

EXTRA_TRAFFIC = 0.45
"""Section 4.5: % more communication than classifier-based methods, with ResNet-18."""

EXIT_MACS = {"cifar10": 16.15e6, "cifar100": 300.45e6, "tiny-imagenet": 1545.69e6, "agnews": 446.58e6}
SAVINGS = {"cifar10": 46.15, "cifar100": 44.73, "tiny-imagenet": 30.74, "agnews": 48.49}
"""Section 5.3.1: mean MACs of X-FED under its threshold, and savings in % as printed there.

They do not agree: from the printed MACs the savings are 46.86, 46.15, 30.74 and 44.97 %.
"""

EXITS = {"cifar10": 3, "cifar100": 4, "tiny-imagenet": 4, "agnews": 4}
"""Exits of the paper's networks; with another number of them, an exit of ours is not the one that is printed."""

SCHEDULE_MARGINS = {"cifar100": (2.33, 3.48, 5.51, 0.92), "tiny-imagenet": (1.10, 1.52, 2.58, 1.78)}
"""Section 5.4.3: by how much the worst progressive schedule exceeds `fixed`, at each exit."""

BEST_MU = (0.6, 0.8)
"""Section 5.4.4."""

THRESHOLD, DROP, SAVING = 0.6, 2.01, 37.15
"""Section 5.4.5, CIFAR-100: at this threshold, points of accuracy below the full model, and MACs saved in %."""

EXIT_GAINS = ((6.98, 18.46), (3.15, 14.04), (1.29, 18.46), (0.61, 16.11))
"""Section 5.2, CIFAR-100: by how much X-FED exceeds the five best baselines, at each exit."""


@dataclass(frozen=True)
class Claim:
    """A statement on the trade-off: a budget in MACs (accuracy gained) or an accuracy in % (MACs saved, in times)."""

    low: float
    high: float
    macs: float | None = None
    accuracy: float | None = None


TRADE_OFF = {
    "cifar10": Claim(0.2, 5.5, accuracy=70),
    "agnews": Claim(0.2, 2.8, accuracy=78),
    "cifar100": Claim(2.5, 14.5, macs=3.5e8),
    "tiny-imagenet": Claim(2.0, 11.0, macs=1.4e9),
}
"""Section 5.2, accuracy-efficiency trade-off."""

CASE_STUDY = {"clean": (15.17, 24.81, 2.05), "noise": (9.36, 26.66, 1.99)}
"""Section 5.5: points of accuracy gained over FedPer and FedAvg (lowest, highest), and times faster."""


@cache
def _tables() -> dict[tuple[str, str, str, str, str, str], Number]:
    with TABLES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("place", "dataset", "alpha", "method", "variant", "exit")
    return {tuple(row[k] for k in keys): Number(float(row["accuracy"]), float(row["std"])) for row in rows}  # type: ignore[misc]


def accuracy(
    place: str, dataset: str, method: str, alpha: float | None = 0.3, variant: str = "", exit: int | None = None
) -> Number | None:
    """Look an accuracy up (%, with its std over clients); exits count from 0 here. Nothing where none is printed.

    Table 2 does not name its α.
    """
    at = "" if alpha is None else f"{alpha:g}"
    return _tables().get((place, dataset, at, method, variant, "" if exit is None else str(exit + 1)))


def per_exit(dataset: str, method: str, exit: int, exits: int, alpha: float = 0.3) -> tuple[Number | None, str]:
    """Look up an exit of a method as it is, in whichever table prints it; and the table's name.

    Nothing for a network whose number of exits is not the paper's.
    """
    if exits != EXITS[dataset]:
        return None, ""
    variant = {"fedper": "none", "xfed": "KD + TM + SS"}.get(method, "")
    found = accuracy("Table 5", dataset, method, alpha, variant, exit)
    if found is not None:
        return found, "Table 5"
    found = accuracy("Table 3", dataset, method, alpha, "", exit)
    return found, "Table 3" if found else ""
