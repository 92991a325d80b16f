"""Published values against the paper's source, read here in another way."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from xfed.paper import published
from xfed.paper.scales import TASKS

SOURCES = [parent / "shared" / "paper.tex" for parent in Path(__file__).resolve().parents]
PAPER = next((path for path in SOURCES if path.is_file()), None)
LABELS = {"Table 1": "tab:eefl", "Table 2": "tab:pfl", "Table 3": "tab:impact-local-kd", "Table 5": "tab:ablation"}

source = pytest.mark.skipif(PAPER is None, reason="needs the paper's source, paper.tex, in a folder 'shared' above")


def text() -> str:
    assert PAPER is not None
    return PAPER.read_text(encoding="utf-8")


@source
@pytest.mark.parametrize("place", LABELS)
def test_every_accuracy_of_a_table_in_its_order(place: str) -> None:
    body = text().split(rf"\label{{{LABELS[place]}}}")[1].split(r"\end{table")[0]
    plain = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body).replace("$", "")
    printed = re.findall(r"(\d+\.\d+)_\{\\pm (\d+\.\d+)\}", plain)
    with published.TABLES.open(encoding="utf-8") as file:
        ours = [(row["accuracy"], row["std"]) for row in csv.DictReader(file) if row["place"] == place]
    assert ours == printed
    assert len(printed) in (98, 48, 40, 32)


@source
@pytest.mark.parametrize(
    "stated",
    [
        r"0.02 & 0.02 & 0.05 & 0.48 & 1.43", r"approximately $0.8$", r"merely $0.45\%$ higher",
        r"$16.15M$, $300.45M$, $1545.69M$, $446.58M$", r"$46.15\%$, $44.73\%$, $30.74\%$ and $48.49\%$",
        r"$2.33\%$, $3.48\%$, $5.51\%$ and $0.92\%$ for CIFAR-100", r"$1.10\%$, $1.52\%$, $2.58\%$ and $1.78\%$",
        r"$\mu \in [0.6,0.8]$", r"accuracy drop of $2.01\%$", r"reduced by $37.15\%$",
        r"$30.39M$, $557.94M$, $2231.64M$ and $811.57M$", r"$15.17$-$24.81\%$, $9.36$-$26.66\%$",
        r"$2.05\times$, $1.99\times$", r"accuracy of $70\%$, \sysname saves $0.2$-$5.5\times$",
        r"accuracy of $78\%$, \sysname saves $0.2$-$2.8\times$",
        r"$3.5\times10^8$ MACs, the accuracy of \sysname is $2.5$-$14.5\%$",
        r"$1.4\times10^9$ MACs, the accuracy of \sysname is $2$-$11\%$", r"$1.29$-$18.46\%$ and $0.61$-$16.11\%$",
    ],
)  # fmt: skip
def test_every_statement_stands_in_the_text(stated: str) -> None:
    assert stated in text()


def test_a_value_of_each_table() -> None:
    assert str(published.accuracy("Table 1", "cifar10", "xfed")) == "72.67 ± 10.71"
    assert str(published.accuracy("Table 1", "tiny-imagenet", "fedpac", 0.1)) == "46.47 ± 12.65"
    assert str(published.accuracy("Table 2", "agnews", "xfed", None)) == "79.28 ± 14.95"
    assert str(published.accuracy("Table 3", "cifar100", "fedbabu", 0.3, "local KD", 3)) == "30.82 ± 8.30"
    assert str(published.accuracy("Table 5", "cifar100", "xfed", 0.3, "KD + TM", 2)) == "48.21 ± 5.54"
    assert published.accuracy("Table 1", "agnews", "xfed", 0.1) is None


def test_exits_average_to_the_averaged_accuracy() -> None:
    """The per-exit rows of Table 5 and the averages of Table 1 are of the same runs."""
    for dataset in ("cifar100", "tiny-imagenet"):
        exits = [published.per_exit(dataset, "xfed", j, 4)[0] for j in range(4)]
        averaged = published.accuracy("Table 1", dataset, "xfed")
        assert averaged is not None
        assert sum(each.value for each in exits if each) / 4 == pytest.approx(averaged.value, abs=0.006)


def test_exits_of_another_network_are_not_the_printed_ones() -> None:
    assert published.per_exit("cifar100", "xfed", 2, 3) == (None, "")


def test_macs_and_savings_as_printed_do_not_agree() -> None:
    """What the notes of the single-exit table say: recomputed, they are 46.86, 46.15, 30.74 and 44.97 %."""
    again = [100 * (1 - published.EXIT_MACS[name] / task.macs) for name, task in TASKS.items()]
    assert again == pytest.approx([46.86, 46.15, 30.74, 44.97], abs=0.005)
