"""What runs came to, as a table: on the terminal and in Markdown for people, as CSV in plain numbers with units."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xfed.experiment import Experiment
from xfed.report.rows import MethodRow, mean
from xfed.report.terminal import show_caption, show_table
from xfed.runs.reader import Run
from xfed.units import counted, size
from xfed_runtime.answers import ANSWERS

CAPTION = (
    "Accuracy in % on each client's own test samples: averaged over exits, then mean ± std over clients. "
    "last: final evaluation (exits too); trained, never: of clients that took part or not; last5: mean of the last "
    "five evaluated rounds; best: best evaluated round. "
    "down, up: bytes of the messages of one client in one round; GMAC: what it computes then; s/round: seconds of "
    "training per round, all its clients and the server; client, server: state "
    "that one client and the server keep between rounds; time: rounds and evaluations together."
)
SHORT = "In % ± std over clients; up, GMAC: per client and round"
MAJORITY = "majority class"

BY_TOTAL = " (the method plans by the number of rounds, so this is not what a run gives that had it from the start)"


@dataclass(frozen=True)
class Column:
    """A column: its cell for people, its numbers for machines by name and unit, and how important it is (0 first)."""

    name: str
    rank: int
    shown: Callable[[MethodRow], str]
    numbers: Mapping[str, Callable[[MethodRow], float | None]]


def columns(rows: Sequence[MethodRow]) -> list[Column]:
    """Lay the columns out that these rows need."""
    several = any(row.seeds > 1 for row in rows)
    apart = any(row.untrained_alone is not None for row in rows)
    exits = max(len(row.exits) for row in rows)
    made = [Column("last", 1, _last, {"last (%)": _percent("last"), "last, std over clients (%)": _percent("std")})]
    if several:
        spread = {"last, std over seeds (%)": _percent("seed_std")}
        made.append(Column("± seeds", 2, _spread, spread))
    if apart:
        made += [_share("trained", "trained_alone", 10), _share("never", "untrained_alone", 10)]
    made += [_share("last5", "last5", 8), _share("best", "best", 9)]
    made += [_exit(index) for index in range(exits)]
    made += [_bytes("down", "bytes_down", 7), _bytes("up", "bytes_up", 4)]
    made.append(Column("GMAC", 5, lambda row: f"{row.macs / 1e9:.2f}", {"computed (MAC)": lambda row: row.macs}))
    made.append(_seconds("s/round", "training per round (s)", "train_seconds", 6))
    made += [_bytes("client", "client_state", 11), _bytes("server", "server_state", 11)]
    made.append(Column("time", 12, lambda row: f"{row.seconds:.1f} s", {"time (s)": lambda row: row.seconds}))
    return made


def _spread(row: MethodRow) -> str:
    return "–" if row.seed_std is None else f"± {100 * row.seed_std:.2f}"


def _last(row: MethodRow) -> str:
    return f"{100 * row.last:.2f} ± {100 * row.std:.2f}"


def _percent(name: str) -> Callable[[MethodRow], float | None]:
    def value(row: MethodRow) -> float | None:
        found = getattr(row, name)
        return None if found is None else 100 * found

    return value


def _share(name: str, source: str, rank: int) -> Column:
    value = _percent(source)

    def shown(row: MethodRow) -> str:
        found = value(row)
        return "–" if found is None else f"{found:.2f}"

    return Column(name, rank, shown, {f"{name} (%)": value})


def _exit(index: int) -> Column:
    name = f"exit {index + 1}"

    def of(values: Sequence[float]) -> float | None:
        return 100 * values[index] if index < len(values) else None

    return Column(
        name,
        3,
        lambda row: "" if (found := of(row.exits)) is None else f"{found:.2f}",
        {f"{name} (%)": lambda row: of(row.exits), f"{name}, std over clients (%)": lambda row: of(row.exit_stds)},
    )


def _bytes(name: str, source: str, rank: int) -> Column:
    def value(row: MethodRow) -> float | None:
        found: float | None = getattr(row, source)
        return found

    return Column(name, rank, lambda row: "–" if (b := value(row)) is None else size(b), {f"{name} (B)": value})


def _seconds(name: str, unit_name: str, source: str, rank: int) -> Column:
    return Column(
        name, rank, lambda row: f"{getattr(row, source):.2f}", {unit_name: lambda row: float(getattr(row, source))}
    )


def cells(rows: Sequence[MethodRow], runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Lay out header and cells for people; the last line is the trivial answer, for comparison."""
    made = columns(rows)
    body = [[row.method, *(column.shown(row) for column in made)] for row in rows]
    average, std = majority(runs)
    body.append([MAJORITY, f"{100 * average:.2f} ± {100 * std:.2f}", *[""] * (len(made) - 1)])
    return ["method", *(column.name for column in made)], body


def majority(runs: Sequence[Run]) -> tuple[float, float]:
    """Give what the trivial answer scores, mean and std over clients."""
    baselines = [run.environment()["majority_baseline"] for run in runs]
    return mean(each["mean"] for each in baselines), mean(each["std"] for each in baselines)


def settings_in_words(runs: Sequence[Run]) -> str:
    """Say what was run, in a line; where runs differ, what each of them has."""
    seeds = ", ".join(str(seed) for seed in sorted({run.experiment.seed for run in runs}))
    return (
        f"{_any(runs, lambda e: e.dataset)}, {_any(runs, lambda e: e.model)}; "
        f"{_any(runs, lambda e: e.dealing.clients)} clients, {_any(runs, lambda e: e.cohort_size)} per round, "
        f"{_any(runs, lambda e: e.dealing.in_words())}, "
        f"{_any(runs, lambda e: f'{e.training.rounds} × {e.training.epochs}')} epochs, seed {seeds}"
    )


def _any(runs: Sequence[Run], of: Callable[[Experiment], object]) -> str:
    """Say what runs have: one value, or all there are."""
    return " or ".join(dict.fromkeys(str(of(run.experiment)) for run in runs))


def warnings(rows: Sequence[MethodRow], runs: Sequence[Run]) -> list[str]:
    """Say what a reader must know before comparing the rows, in sentences."""
    told = []
    own, running = ([run for run in runs if run.experiment.answering() == kind] for kind in ANSWERS)
    if own and running:
        means, each = (", ".join(dict.fromkeys(run.experiment.method for run in some)) for some in (running, own))
        told.append(f"Exits answer with running means in {means}, with their own softmax in {each}.")
    unseen = max(int((~run.summary().last.trained).sum()) for run in runs)
    if unseen:
        told.append(f"Of the evaluated clients, up to {unseen} never took part (columns: trained, never).")
    evaluated, clients = max(len(run.summary().last.trained) for run in runs), runs[0].experiment.dealing.clients
    if evaluated < clients:
        told.append(f"Evaluated: a sample of {evaluated:,} clients, each counting for the clients it stands for.")
    dropped = sum(len(record.failed) for run in runs for record in run.records())
    if dropped:
        told.append(f"{dropped} answers were missing: those clients were left out of their rounds.")
    tuned = {row.method: row.tuning for row in rows if row.tuning}
    if tuned:
        costs = ", ".join(f"{method} {macs / 1e9:.2f}" for method, macs in tuned.items())
        told.append(f"Tuning before the final evaluation cost each client, in GMAC beside the column's: {costs}.")
    for run in runs:
        who, rounds = f"{run.experiment.method}, seed {run.experiment.seed}", run.experiment.training.rounds
        if not run.finished:
            told.append(f"{who}, is not finished: it is as after round {run.evaluations()[-1].round} of {rounds}.")
        if run.changes():
            planned = any(change.setting == "rounds" for change in run.changes())
            by_total = BY_TOTAL if planned and run.experiment.algorithm().plans_by_total else ""
            told.append(f"{who}, was continued otherwise: {', '.join(map(str, run.changes()))}{by_total}.")
    again = len(runs) - sum(row.seeds for row in rows)
    if again:
        told.append(f"Left out: {counted(again, 'run')} with the settings and the seed of another.")
    codes = {run.environment()["code"] for run in runs}
    if len(codes) > 1:
        by_code = ", ".join(f"{code}: {_names(runs, code)}" for code in sorted(codes))
        told.append(f"The runs are of different code ({by_code}).")
    return told


def _names(runs: Sequence[Run], code: str) -> str:
    return " ".join(dict.fromkeys(run.experiment.method for run in runs if run.environment()["code"] == code))


def notes(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Say all there is to say about a table."""
    more = (
        f"Exits: {_any(runs, lambda e: e.exits)}; batch {_any(runs, lambda e: e.training.batch_size)}, "
        f"rate {_any(runs, lambda e: f'{e.training.lr:g} × {e.training.lr_decay:g}')} per round."
    )
    return " ".join([f"{settings_in_words(runs)}.", more, *warnings(rows, runs), CAPTION])


def show(rows: Sequence[MethodRow], runs: Sequence[Run], wide: bool = False) -> None:
    """Print the table to the terminal."""
    header, body = cells(rows, runs)
    ranks = [0, *(column.rank for column in columns(rows))]
    styles = [""] * len(rows) + ["dim"]
    hidden = show_table(header, body, ranks=ranks, styles=styles, wide=wide)
    if wide:
        show_caption(notes(rows, runs), wide)
        return
    show_caption(f"{settings_in_words(runs)}. {SHORT}.", wide=True, hidden=hidden)
    for warning in warnings(rows, runs):
        show_caption(warning, wide=True)


def markdown(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Write the table as Markdown, with all columns and notes."""
    header, body = cells(rows, runs)
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = ["| " + " | ".join(line) + " |" for line in (header, rule, *body)]
    return "\n".join([*lines, "", notes(rows, runs), ""])


def as_html(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Write the table for a notebook."""
    header, body = cells(rows, runs)
    lines = [f"<tr>{''.join(f'<th>{html.escape(name)}</th>' for name in header)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in body]
    told = " ".join([f"{settings_in_words(runs)}.", *warnings(rows, runs)])
    return f"<table>{''.join(lines)}</table><p><small>{html.escape(told)}</small></p>"


def comma_separated(rows: Sequence[MethodRow], runs: Sequence[Run]) -> str:
    """Write the table as CSV: plain numbers, their units in the header, nothing where a number does not exist."""
    numbers = {name: value for column in columns(rows) for name, value in column.numbers.items()}
    average, std = majority(runs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "seeds", *numbers])
    for row in rows:
        found = [value(row) for value in numbers.values()]
        writer.writerow([row.method, row.seeds, *("" if number is None else number for number in found)])
    writer.writerow([MAJORITY, "", 100 * average, 100 * std, *[""] * (len(numbers) - 2)])
    return text.getvalue()
