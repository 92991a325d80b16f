"""Tables and figures of accuracy: Tables 1, 2, 3 and 5, and Figures 2 and 6."""

from __future__ import annotations

from collections.abc import Sequence

from xfed.paper import published
from xfed.paper.artefact import Product, Results
from xfed.paper.measuring import at_threshold
from xfed.paper.scales import SETTINGS, TASKS, Choice, Wanted
from xfed.report.drawing import bars
from xfed.report.sheet import Cell, Number, accuracy, over_seeds
from xfed.runs.reader import Run

TYPES = {
    "": ("local",),
    "GFL-EE": ("fedavg", "fedprox", "scalefl", "depthfl"),
    "PFL-EE": ("fedper", "fedrep", "fedbabu", "fedamp", "pfedgraph", "fedrod", "ditto", "fedpac"),
    "ours": ("xfed",),
    "beyond": ("xfed-plus",),
}
TYPE_OF = {method: kind for kind, group in TYPES.items() for method in group}
METHODS = tuple(TYPE_OF)
BEST = ("xfed", "fedper", "fedrep", "fedbabu", "fedrod", "fedpac")
"""X-FED and the five baselines that the paper looks into."""
EARLY = ("xfed", "xfed-plus")
"""What is shown with its early exits beside static models."""
LAST = "Accuracy in %, last evaluation: mean ± std over clients."


def column(dataset: str, alpha: float) -> str:
    """Head a column of Table 1."""
    return f"{TASKS[dataset].title} Dir({alpha:g})"


def label(wanted: Wanted) -> str:
    """Name a run within one data set."""
    return f"{wanted.method}{', ' if wanted.variant else ''}{wanted.variant}"


# Table 1


def averaged_wanted(choice: Choice) -> list[Wanted]:
    """All methods in all settings."""
    return [Wanted(dataset, alpha, method) for dataset, alpha in SETTINGS for method in METHODS]


def averaged(results: Results) -> Product:
    """Lay the settings out side by side, each with its published column."""
    settings = list(dict.fromkeys((wanted.dataset, wanted.alpha) for wanted in results.runs))
    methods = list(dict.fromkeys(wanted.method for wanted in results.runs))
    header = ["type", "method"]
    for setting in settings:
        header += [column(*setting), f"published {column(*setting)}"]
    rows: list[list[Cell]] = []
    ours: dict[str, list[float | None]] = {}
    printed: dict[str, list[float | None]] = {}
    for method in methods:
        row: list[Cell] = [TYPE_OF[method], method]
        for dataset, alpha in settings:
            number = accuracy(results.runs[Wanted(dataset, alpha, method)])
            theirs = published.accuracy("Table 1", dataset, method, alpha)
            row += [number, theirs]
            ours.setdefault(column(dataset, alpha), []).append(number.value)
            printed.setdefault(column(dataset, alpha), []).append(theirs.value if theirs else None)
        rows.append(row)
    trivial: list[Cell] = ["", "majority class"]
    for dataset, alpha in settings:
        trivial += [majority(results.runs[Wanted(dataset, alpha, methods[0])]), None]
    text = f"{LAST} Averaged over exits. Published: Table 1."
    drawing = results.drawing(len(settings), width=6.5)
    for panel, (name, values) in zip(drawing.panels, ours.items(), strict=True):
        bars(panel, methods, {"ours": values}, {"ours": printed[name]})
        panel.tick_params(axis="x", rotation=60, labelsize=7)
        panel.set_title(name, fontsize=9)
        panel.set_ylabel("averaged accuracy (%)")
        panel.legend(fontsize=7, frameon=False)
    return Product({"table": results.sheet(header, [*rows, trivial], text)}, {"figure": drawing})


def majority(runs: Sequence[Run]) -> Number:
    """Give the accuracy of always answering a client's most frequent class."""
    found = [run.environment()["majority_baseline"] for run in runs]
    return over_seeds([100 * each["mean"] for each in found], [100 * each["std"] for each in found])


# Figure 6


def exits_wanted(choice: Choice) -> list[Wanted]:
    """X-FED, the five best baselines and X-FED+, Dir(0.3)."""
    return [Wanted(dataset, 0.3, method) for dataset in TASKS for method in (*BEST, "xfed-plus")]


def exits(results: Results) -> Product:
    """Show each exit of each method, and what X-FED gains."""
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.datasets))
    gains: list[list[Cell]] = []
    for panel, dataset in zip(drawing.panels, results.datasets, strict=True):
        ours: dict[str, list[float | None]] = {}
        printed: dict[str, list[float | None]] = {}
        for wanted, runs in results.on(dataset).items():
            count = len(runs[0].exit_macs)
            for j in range(count):
                number = accuracy(runs, j)
                theirs, place = published.per_exit(dataset, wanted.method, j, count)
                rows.append([TASKS[dataset].title, wanted.method, f"exit {j + 1}", number, theirs, place])
                ours.setdefault(wanted.method, []).append(number.value)
                printed.setdefault(wanted.method, []).append(theirs.value if theirs else None)
        exits = len(next(iter(ours.values())))
        bars(panel, [f"exit {j + 1}" for j in range(exits)], ours, printed)
        panel.set_title(TASKS[dataset].title, fontsize=9)
        panel.set_ylabel("accuracy (%)")
        others = [values for method, values in ours.items() if method not in EARLY]
        if "xfed" in ours and others:
            for j, mine in enumerate(ours["xfed"]):
                assert mine is not None
                differences = [mine - (other[j] or 0) for other in others]
                same = dataset == "cifar100" and exits == published.EXITS[dataset]
                stated = published.EXIT_GAINS[j] if same else None
                theirs_text = f"{stated[0]:.2f} to {stated[1]:.2f}" if stated else ""
                between = f"{min(differences):.2f} to {max(differences):.2f}"
                gains.append([TASKS[dataset].title, f"exit {j + 1}", between, theirs_text])
    header = ["data set", "method", "exit", "ours", "published", "published in"]
    text = f"{LAST} Published where a table prints the same exit; Figure 6 itself carries no numbers."
    sheets = {"table": results.sheet(header, rows, text)}
    if gains:
        header = ["data set", "exit", "X-FED over the others", "published"]
        sheets["gains"] = results.sheet(header, gains, "Points of accuracy, lowest to highest. Published: Section 5.2.")
    return Product(sheets, {"figure": drawing})


# Table 2


def single_wanted(choice: Choice) -> list[Wanted]:
    """Single-exit models of all methods that have one, and X-FED and X-FED+ with their exits."""
    found = []
    for dataset in TASKS:
        for method in METHODS:
            if method in EARLY:
                found.append(Wanted(dataset, 0.3, method))
            elif method not in ("scalefl", "depthfl"):
                found.append(Wanted(dataset, 0.3, method, "single exit", (("exits", "last"),)))
    return found


def single(results: Results) -> Product:
    """Compare static models with X-FED under its threshold, in accuracy and in MACs."""
    methods = list(dict.fromkeys(wanted.method for wanted in results.runs))
    header, rows = ["method"], [[method] for method in methods]
    costs: list[list[Cell]] = []
    drawing = results.drawing(len(results.datasets), width=6.0)
    for panel, dataset in zip(drawing.panels, results.datasets, strict=True):
        title, epsilon = TASKS[dataset].title, TASKS[dataset].epsilon
        header += [title, f"published {title}"]
        ours, printed = [], []
        static = early = None
        for row, (wanted, runs) in zip(rows, results.on(dataset).items(), strict=True):
            if wanted.method in EARLY:
                number, cost = at_threshold(runs, epsilon)
                early = cost if wanted.method == "xfed" else early
            else:
                number = accuracy(runs)
                static = Number(runs[0].exit_macs[0] / 1e6)
            theirs = published.accuracy("Table 2", dataset, wanted.method, None)
            row += [number, theirs]  # type: ignore[list-item]
            ours.append(number.value)
            printed.append(theirs.value if theirs else None)
        bars(panel, methods, {"ours": ours}, {"ours": printed})
        panel.tick_params(axis="x", rotation=60, labelsize=7)
        panel.set_title(f"{title}, X-FED at ε = {epsilon:g}", fontsize=9)
        panel.set_ylabel("accuracy (%)")
        panel.legend(fontsize=7, frameon=False)
        saving = Number(100 * (1 - early.value / static.value)) if early and static else None
        theirs_macs = published.EXIT_MACS[dataset]
        costs.append(
            [
                title, f"{epsilon:g}", static, Number(TASKS[dataset].macs / 1e6), early, Number(theirs_macs / 1e6),
                saving, Number(published.SAVINGS[dataset]), Number(100 * (1 - theirs_macs / TASKS[dataset].macs)),
            ]
        )  # fmt: skip
    text = f"{LAST} Static models of one exit; X-FED under its threshold ε. Published: Table 2, which names no α."
    cost_header = [
        "data set", "ε", "static MACs (M)", "published static", "X-FED MACs (M)", "published X-FED", "saved (%)",
        "published saved", "saved by the published MACs",
    ]  # fmt: skip
    cost_text = (
        "Mean over clients of the mean over test samples; exact MACs; saved: of the static network, which has one "
        "exit. Published: Section 5.3.1, thop's convention."
    )
    sheets = {"table": results.sheet(header, rows, text), "macs": results.sheet(cost_header, costs, cost_text, "MACs")}
    return Product(sheets, {"figure": drawing})


# Tables 3 and 5, Figure 2: exits side by side

LOCAL_KD = (("local_kd", "sum"),)
NO_MIXING = (("xfed.schedule", "fixed"), ("xfed.mu", 1e-6))
ALL_EXITS = (("xfed.schedule", "fixed"),)


def distillation_wanted(choice: Choice) -> list[Wanted]:
    """The five best baselines, without and with local distillation."""
    return [
        Wanted("cifar100", 0.3, method, variant, changes)
        for method in BEST[1:]
        for variant, changes in (("", ()), ("local KD", LOCAL_KD))
    ]


def ablation_wanted(choice: Choice) -> list[Wanted]:
    """The four rows, and the three with distillation again with a live teacher."""
    found = []
    for dataset in ("cifar100", "tiny-imagenet"):
        found.append(Wanted(dataset, 0.3, "fedper", "none"))
        for live, teacher in (("", ()), (", live teacher", (("xfed.teacher", "live"),))):
            found.append(Wanted(dataset, 0.3, "xfed", f"KD{live}", NO_MIXING + teacher))
            found.append(Wanted(dataset, 0.3, "xfed", f"KD + TM{live}", ALL_EXITS + teacher))
            found.append(Wanted(dataset, 0.3, "xfed", f"KD + TM + SS{live}", teacher))
    return found


def motivation_wanted(choice: Choice) -> list[Wanted]:
    """The four bars."""
    return [
        Wanted("cifar100", 0.3, "posthoc", "local"),
        Wanted("cifar100", 0.3, "fedper", "joint"),
        Wanted("cifar100", 0.3, "fedper", "joint + local KD", LOCAL_KD),
        Wanted("cifar100", 0.3, "xfed", "joint + cross-client KD"),
    ]


SAME = {
    "joint": ("Table 5", "none"),
    "joint + local KD": ("Table 3", "local KD"),
    "joint + cross-client KD": ("Table 5", "KD + TM + SS"),
}
"""Where the bars of Figure 2 are printed as rows of tables; "local" nowhere."""


def side_by_side(results: Results) -> Product:
    """Lay exits out side by side, each with its published column."""
    most = max(len(runs[0].exit_macs) for _, runs in results)
    header = ["data set", "method", "variant", "averaged", "published averaged"]
    for j in range(most):
        header += [f"exit {j + 1}", f"published exit {j + 1}"]
    rows: list[list[Cell]] = []
    drawing = results.drawing(len(results.datasets), width=8.0)
    for panel, dataset in zip(drawing.panels, results.datasets, strict=True):
        ours, printed = {}, {}
        for wanted, runs in results.on(dataset).items():
            exits = range(len(runs[0].exit_macs))
            numbers = [accuracy(runs, j) for j in exits]
            stated = [_printed(wanted, j) for j in range(published.EXITS[dataset])]
            theirs = stated if len(stated) == len(exits) else [None] * len(exits)
            rows.append([TASKS[dataset].title, wanted.method, wanted.variant or "–", accuracy(runs), _mean(stated)])
            for pair in zip(numbers, theirs, strict=True):
                rows[-1] += pair
            ours[label(wanted)] = [number.value for number in numbers]
            printed[label(wanted)] = [number.value if number else None for number in theirs]
        bars(panel, [f"exit {j + 1}" for j in exits], ours, printed)
        panel.set_title(TASKS[dataset].title, fontsize=9)
        panel.set_ylabel("accuracy (%)")
    shown = [k for k, name in enumerate(header) if "published exit" not in name or any(row[k] for row in rows)]
    header, rows = [header[k] for k in shown], [[row[k] for k in shown] for row in rows]
    text = (
        f"{LAST} Published: Table 3 and Table 5, averaged over exits by us; what neither prints, or prints for "
        "a network with another number of exits, is left empty."
    )
    return Product({"table": results.sheet(header, rows, text)}, {"figure": drawing})


def _mean(numbers: Sequence[Number | None]) -> Number | None:
    known = [number.value for number in numbers if number is not None]
    return Number(sum(known) / len(known)) if len(known) == len(numbers) else None


def _printed(wanted: Wanted, exit: int) -> Number | None:
    place, variant = SAME.get(wanted.variant, ("", wanted.variant))
    for table in [place] if place else ["Table 3", "Table 5"]:
        found = published.accuracy(table, wanted.dataset, wanted.method, wanted.alpha, variant, exit)
        if found:
            return found
    return None
