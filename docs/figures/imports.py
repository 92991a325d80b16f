"""Draw which room imports which, from the code: `python docs/figures/imports.py` writes docs/images/imports.svg.

Rows are the layers that import-linter holds; an arrow means that modules of the upper room import modules of the
lower one, and arrows that a way over other rooms implies are left out. Readers of a run stand on the left, doers on the
right, what both build on in the middle.
"""

from __future__ import annotations

from pathlib import Path

import grimp
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

matplotlib.rcParams["svg.hashsalt"] = "xfed"  # the same picture every time
IMAGE = Path(__file__).parents[1] / "images" / "imports.svg"
READER, DOER, SHARED = "#cfe3f5", "#fbe0c3", "#e9e9e9"
ROWS: list[list[tuple[str, float, str]]] = [
    [("cli", 0.5, SHARED)],
    [("paper", 0.58, SHARED), ("flower", 0.93, DOER)],
    [("api", 0.25, SHARED)],
    [("report", 0.3, READER), ("comparison", 0.7, DOER)],
    [("bundles", 0.07, READER), ("running", 0.85, DOER)],
    [("calibration", 0.1, READER), ("inference", 0.38, READER), ("engines", 0.7, DOER)],
    [("federation", 0.85, DOER)],
    [("runs", 0.5, SHARED)],
    [("experiment", 0.5, SHARED)],
    [("algorithms", 0.22, SHARED), ("evaluation", 0.78, SHARED)],
    [("protocol", 0.5, SHARED)],
    [("training", 0.5, SHARED)],
    [("kernels", 0.5, SHARED)],
    [("models", 0.2, SHARED), ("data", 0.8, SHARED)],
]
WIDTH, HEIGHT = 0.13, 0.045


def edges() -> set[tuple[str, str]]:
    """Find the imports between rooms."""
    graph = grimp.build_graph("xfed")
    rooms = {name for row in ROWS for name, _, _ in row}
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = tuple([*name.split("."), ""][1] for name in (module, imported))
            if pair[0] != pair[1] and set(pair) <= rooms:
                found.add((pair[0], pair[1]))
    return found


def reduced(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out arrows that a way over other rooms implies."""
    below = {upper: {lower for above, lower in arrows if above == upper} for upper, _ in arrows}

    def reaches(upper: str, lower: str) -> bool:
        return lower in below.get(upper, set()) or any(reaches(room, lower) for room in below.get(upper, set()))

    return {
        (upper, lower)
        for upper, lower in arrows
        if not any(reaches(room, lower) for room in below[upper] if room != lower)
    }


def draw(axes: Axes, arrows: set[tuple[str, str]]) -> None:
    """Put rooms into rows and arrows between them; a room far below is reached by a bent arrow."""
    places: dict[str, tuple[float, float, int]] = {}
    for number, row in enumerate(ROWS):
        for name, x, color in row:
            y = 1 - (number + 0.5) / len(ROWS)
            places[name] = (x, y, number)
            corner = (x - WIDTH / 2, y - HEIGHT / 2)
            box = FancyBboxPatch(
                corner, WIDTH, HEIGHT, boxstyle="round,pad=0.004", fc=color, ec="0.35", lw=0.8, zorder=3
            )
            axes.add_patch(box)
            axes.text(x, y, name, ha="center", va="center", fontsize=10, zorder=4)
    for upper, lower in sorted(arrows):
        (x0, y0, row0), (x1, y1, row1) = places[upper], places[lower]
        between = {x for row in ROWS[row0 + 1 : row1] for _, x, _ in row}
        bend = 0.8 if x0 == x1 and x0 in between else 0.0
        style = {"arrowstyle": "-|>", "color": "0.45", "lw": 0.7, "connectionstyle": f"arc3,rad={bend}"}
        start, end = (x0, y0 - HEIGHT / 2 - 0.004), (x1, y1 + HEIGHT / 2 + 0.004)
        axes.annotate("", end, start, arrowprops=style, zorder=2)
    axes.text(0.07, 0.985, "reads a run", ha="center", fontsize=10, style="italic", color="0.3")
    axes.text(0.93, 0.985, "carries one out", ha="center", fontsize=10, style="italic", color="0.3")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.axis("off")


def main() -> None:
    """Write the picture."""
    figure = Figure(figsize=(8, 9), layout="constrained")
    draw(figure.subplots(), reduced(edges()))
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
