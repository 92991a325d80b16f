"""A page of results from kept runs: who did how well, beside what was published, and which differences are real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from xfed.errors import InputError
from xfed.files import refuse_foreign, write_text
from xfed.paper import published
from xfed.paper.kept import Accuracies, KeptRun, kept_runs
from xfed.report.drawing import PALETTE, Drawing, lines
from xfed.report.sheet import Cell, Number, Sheet, over_seeds
from xfed.runs.settings import flat
from xfed_runtime.answers import ANSWERS, Answer

SEVERAL = (
    "Averaged, exits: with the answers that count in the run, running ones for xfed-plus, own ones for all others; "
    "both kinds stand beside it. "
)
FREE: dict[str, Any] = {
    "seed": True,
    "method": True,
    "answers": True,
    "place": True,
    "evaluation": True,
    "settings": {"method", "engine"},
    "training": {"lr", "refit", "local_kd", "kernels", "on_failure", "min_replies"},
}
"""Settings in which runs on one page may differ: a row's name says them, or they say where and how a run was done."""
DIGITS = 5
"""Accuracies are kept to six digits: gaps below the fifth are rounding, of clients that are equally well off."""
MADE_BY = "Made by `xfed paper page"
"""Stands on every page: what lacks it is somebody else's."""
DECISIVE = 0.05
DRAWN = 6
"""Curves in the figure: the best methods."""


@dataclass(frozen=True)
class Row:
    """Runs that differ by their seed alone."""

    label: str
    runs: Sequence[KeptRun]

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.runs[0].experiment.method

    @property
    def seeds(self) -> set[int]:
        """Seeds that it was run with."""
        return {run.experiment.seed for run in self.runs}

    def of(self, seeds: Collection[int]) -> Row:
        """Restrict it to some seeds."""
        return Row(self.label, [run for run in self.runs if run.experiment.seed in seeds])

    def accuracy(self, answers: Answer | None = None, exit: int | None = None) -> Number:
        """Give the last evaluation in %, averaged over exits or of one; by default with the answers that count."""
        found = []
        for run in self.runs:
            kind = answers or run.experiment.answering()
            found.append(100 * (run.accuracy(kind) if exit is None else run.clients[kind][:, exit]))
        return over_seeds([float(each.mean()) for each in found], [float(each.std()) for each in found])


def write_page(folder: Path) -> list[Path]:
    """Write `README.md`, the tables and the figure of a folder of kept runs."""
    runs = kept_runs(folder)
    refuse_foreign(folder / "README.md", MADE_BY)
    for name, column in (("table.csv", "method,"), ("differences.csv", "against,")):
        refuse_foreign(folder / name, column)
    rows = _rows(runs)
    shared = sorted(set.intersection(*(row.seeds for row in rows)))
    rows.sort(key=lambda row: -row.of(shared or row.seeds).accuracy().value)
    table, against = _table(rows, shared), _differences(rows)
    drawing = _drawing(rows)
    for sheet, name in ((table, "table.csv"), (against, "differences.csv")):
        write_text(folder / name, sheet.comma_separated())
    figures = drawing.save(folder / "figure")
    first = _typical(runs)
    text = "\n".join(
        [
            f"# {_data(first)}",
            "",
            f"{_setting(first)}.",
            "",
            "![averaged accuracy](figure.svg)",
            "",
            table.markdown(),
            against.markdown(),
            "## Runs",
            "",
            *_provenance(runs),
            "",
            f"{MADE_BY} {folder.name}` from the folders beside it, each of which is a run in small form "
            "(`xfed paper keep RUN`): settings, costs, accuracy of every client.",
            "",
        ]
    )
    page = folder / "README.md"
    write_text(page, text)
    return [page, folder / "table.csv", folder / "differences.csv", *figures]


def _rows(runs: Sequence[KeptRun]) -> list[Row]:
    groups: dict[str, list[KeptRun]] = {}
    usual = _usual_rate(runs)
    for run in runs:
        _require_alike(runs[0], run)
        group = groups.setdefault(label(run, usual), [])
        for other in group:
            if other.experiment.seed == run.experiment.seed:
                raise InputError(
                    f"kept runs {other.name!r} and {run.name!r} have one method, its settings and seed in common, and "
                    "differ otherwise; keep them in folders of their own"
                )
        group.append(run)
    return [Row(name, group) for name, group in groups.items()]


def _require_alike(one: KeptRun, other: KeptRun) -> None:
    """Refuse runs of different data, networks or training, whose rows do not compare."""
    mine, theirs = (dict(flat(run.experiment.model_dump(mode="json", exclude=FREE))) for run in (one, other))
    unlike = [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]
    if unlike:
        name = unlike[0]
        raise InputError(
            f"kept runs {one.name!r} and {other.name!r} have {mine.get(name)} and {theirs.get(name)} as "
            f"{name.rpartition('.')[2]}; keep them in folders of their own"
        )


def _usual_rate(runs: Sequence[KeptRun]) -> float | None:
    """Give the learning rate that more runs have than any other: others say theirs. Where there is none, all do."""
    first, *others = Counter(run.experiment.training.lr for run in runs).most_common(2)
    return None if others and others[0][1] == first[1] else first[0]


def label(run: KeptRun, usual: float | None) -> str:
    """Name a run by its method, and by what it sets otherwise than the method's defaults and the usual rate."""
    e = run.experiment
    said = [] if e.training.lr == usual else [f"rate {e.training.lr:g}"]
    if e.training.refit is not None:
        said.append(f"refit {e.training.refit:g}" if e.training.refit else "no refit")
    if e.answers is not None:
        said.append(f"{e.answers} answers")
    if e.training.local_kd != "off":
        said.append(f"local KD {e.training.local_kd}")
    defaults: dict[str, Any] = type(e.algorithm()).resolve({}).model_dump(mode="json")
    own = e.settings.get("method", {})
    said += [f"{name} {value}" for name, value in own.items() if value != defaults.get(name)]
    return f"{e.method} ({', '.join(said)})" if said else e.method


def _typical(runs: Sequence[KeptRun]) -> KeptRun:
    usual = _usual_rate(runs)
    return next((run for run in runs if run.experiment.training.lr == usual), runs[0])


def _data(run: KeptRun) -> str:
    e = run.experiment
    return f"{e.dataset}, {e.dealing.in_words()}, {e.model}"


def _setting(run: KeptRun) -> str:
    e = run.experiment
    width = e.settings.get("model", {}).get("width")
    network = f"{e.model}{'' if width is None else f' of width {width}'}{', last exit alone' * (e.exits == 'last')}"
    t = e.training
    return (
        f"{network}, {e.dealing.clients} clients, {e.cohort_size} a round, {t.rounds} rounds of {t.epochs} epochs, "
        f"rate {t.lr:g} × {t.lr_decay:g} per round"
    )


def _table(rows: Sequence[Row], shared: Sequence[int]) -> Sheet:
    exits = rows[0].runs[0].exits
    place = "Table 2" if rows[0].runs[0].experiment.exits == "last" else "Table 1"
    header = ["method", "averaged"]
    if exits > 1:
        header += ["own answers", "running answers", *(f"exit {j + 1}" for j in range(exits))]
    held_out = any(run.facts.get("held_out") is not None for row in rows for run in row.runs)
    header += [*["held out"] * held_out, "published", "seeds", "up (kB)", "GMAC"]
    body: list[list[Cell]] = []
    for row in rows:
        first = row.runs[0]
        line: list[Cell] = [row.label, row.accuracy()]
        if exits > 1:
            line += [*(row.accuracy(kind) for kind in ANSWERS), *(row.accuracy(exit=j) for j in range(exits))]
        if held_out:
            values = [value for run in row.runs if (value := run.facts.get("held_out")) is not None]
            line.append(over_seeds([100 * value for value in values]) if values else None)
        e = first.experiment
        alike = row.label == row.method and e.dealing.way == "dirichlet"
        alpha = None if place == "Table 2" else e.dealing.alpha
        line.append(published.accuracy(place, e.dataset, row.method, alpha) if alike else None)
        line.append(", ".join(str(run.experiment.seed) for run in row.runs))
        line += [Number(first.facts["bytes_up"] / 1000, digits=1), Number(first.facts["macs"] / 1e9)]
        body.append(line)
    by_seed = {run.experiment.seed: run.facts["majority_baseline"] for row in rows for run in row.runs}
    means, spreads = ([100 * by_seed[seed][kind] for seed in sorted(by_seed)] for kind in ("mean", "std"))
    trivial: list[Cell] = ["majority class", over_seeds(means, spreads)]
    body.append(trivial + [None] * (len(header) - 2))
    notes = (
        "Accuracy in %, last evaluation, on each client's own test samples: mean ± std over clients (seeds: std over "
        f"seeds). A seed is also a partition, so rows of different seeds compare by the second table alone"
        f"{_order(shared)}. {SEVERAL * (exits > 1)}Held out: on calibration samples, by which settings may be "
        f"chosen. Published: {place} of the paper, its own networks and rounds. up, GMAC: of one client in one round."
    )
    return Sheet("Averaged accuracy", header, body, notes)


def _order(shared: Sequence[int]) -> str:
    if not shared:
        return ""
    return f"; they stand in the order of seed{'s' * (len(shared) > 1)} {', '.join(map(str, shared))}, which all have"


def _differences(rows: Sequence[Row]) -> Sheet:
    """Compare the best row, of methods as they are where there are such, with every other one, client by client."""
    best = next((row for row in rows if row.label == row.method), rows[0])
    several = best.runs[0].exits > 1
    body: list[list[Cell]] = []
    for row in rows:
        seeds = sorted(best.seeds & row.seeds)
        if row is best or not seeds:
            continue
        gaps = _gaps(best, row, seeds)
        p = _p(gaps)
        said = "different" if p < DECISIVE else "not told apart"
        lead = Number(100 * float(gaps.mean()), 100 * float(gaps.std()))
        better = f"{int((gaps > 0).sum())} of {len(gaps)}"
        line: list[Cell] = [row.label, lead, better, f"{p:.2g}", said]
        for kind in ANSWERS if several else ():
            gaps = _gaps(best, row, seeds, kind)
            line.append(f"{100 * float(gaps.mean()):.2f} (p {_p(gaps):.2g})")
        body.append([*line, ", ".join(map(str, seeds))])
    alike = "With own and with running answers: the lead where both answer so. " if several else ""
    notes = (
        f"Points by which {best.label} leads: mean ± std over clients of the same seeds; p of Wilcoxon's signed-rank "
        f"test over clients, two-sided, called different below {DECISIVE:g}. {alike}It is about these partitions and "
        "initial weights; other seeds move all methods."
    )
    header = ["against", "lead (points)", "clients better off", "p", "verdict"]
    header += [*(f"with {kind} answers" for kind in ANSWERS if several), "seeds"]
    return Sheet(f"{best.label} against the others", header, body, notes)


def _gaps(one: Row, other: Row, seeds: Sequence[int], answers: Answer | None = None) -> Accuracies:
    """Give the differences in accuracy of all clients of some seeds; by default with the answers that count."""
    pairs = ([row.of([seed]).runs[0].accuracy(answers) for row in (one, other)] for seed in seeds)
    return np.concatenate([mine - theirs for mine, theirs in pairs]).round(DIGITS)


def _p(gaps: Accuracies) -> float:
    return float(wilcoxon(gaps).pvalue) if np.any(gaps) else 1.0


def _drawing(rows: Sequence[Row]) -> Drawing:
    typical = _typical([run for row in rows for run in row.runs])
    drawing = Drawing.of(2, f"Averaged accuracy, {_data(typical)}", _setting(typical), width=6.0)
    left, right = drawing.panels
    places = np.arange(len(rows))[::-1]
    numbers = [row.accuracy() for row in rows]
    left.barh(places, [number.value for number in numbers], color=PALETTE[0])
    for place, number in zip(places, numbers, strict=True):
        if number.seeds is not None:
            left.errorbar(number.value, place, xerr=number.seeds, ecolor="black", capsize=2)
    left.set_yticks(places, [row.label for row in rows], fontsize=8)
    left.grid(axis="y", visible=False)
    left.grid(axis="x", alpha=0.25)
    left.set_xlabel("averaged accuracy (%); lines, where there are several seeds: std over them")
    curves = {}
    for row in rows[:DRAWN]:
        run = row.runs[0]
        curves[row.label] = (run.rounds, (100 * run.curves[run.experiment.answering()].mean(axis=1)).tolist())
    lines(right, curves, "round", "averaged accuracy (%)")
    return drawing


def _provenance(runs: Sequence[KeptRun]) -> list[str]:
    lines = ["| run | commit | processor | kernels | minutes |", "| --- | --- | --- | --- | ---: |"]
    for run in runs:
        facts = run.facts
        machine = f"{facts['machine']['processor']}, {facts['machine']['cores']} cores"
        commit = (facts["commit"] or "not known")[:7]
        lines.append(f"| {run.name} | {commit} | {machine} | {facts['kernels']['set']} | {facts['seconds'] / 60:.1f} |")
    return lines
