"""Bars, lines and heat maps in one style, for SVG and PNG; colours that colour-blind readers tell apart."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from xfed.files import whole

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5E4FA2", "#7F7F7F")
"""After Okabe and Ito, with two more."""
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"
CHARACTERS_PER_INCH = 17
"""Of a footer, at most."""


@dataclass(frozen=True)
class Drawing:
    """A figure with its panels; `footer` says the scale."""

    figure: Figure
    panels: list[Axes]

    @classmethod
    def of(cls, panels: int, title: str, footer: str, width: float = 5.2) -> Drawing:
        """Open a figure of panels, at most two beside each other."""
        columns = min(panels, 2)
        rows = -(-panels // columns)
        figure = Figure(figsize=(width * columns + 0.4, 3.9 * rows + 0.5), layout="constrained")
        axes = list(np.atleast_1d(figure.subplots(rows, columns)).ravel())
        for spare in axes[panels:]:
            spare.set_visible(False)
        figure.suptitle(title, fontsize=11)
        fitting = textwrap.fill(footer, int(CHARACTERS_PER_INCH * figure.get_figwidth()))
        figure.supxlabel(fitting, fontsize=7, color="0.35")
        for panel in axes[:panels]:
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(axis="y", alpha=0.25)
            panel.set_axisbelow(True)
        return cls(figure, axes[:panels])

    def save(self, stem: Path) -> list[Path]:
        """Write `stem`.svg and .png."""
        paths = [stem.with_suffix(ending) for ending in (".svg", ".png")]
        for path in paths:
            self.write(path)
        return paths

    def _repr_png_(self) -> bytes:
        """Show the figure in a notebook."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, dpi=100, format="png")
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        """Write one file, of the kind that its suffix names; the same figure gives the same bytes."""
        kind = path.suffix.removeprefix(".").lower()
        metadata: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        with whole(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "xfed", "svg.fonttype": "none"}):
            self.figure.savefig(temporary, dpi=150, format=kind, metadata=metadata)


def style(number: int) -> dict[str, Any]:
    """Give the look of the n-th line: colour, dashes and marker together."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": DASHES[number // len(PALETTE) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
    }


def fill(number: int, variant: bool = False) -> dict[str, Any]:
    """Colour the bars of a series by its number; a variant's are hatched, and those that come after the last colour."""
    return {"color": PALETTE[number % len(PALETTE)], "hatch": "//" * (variant or number >= len(PALETTE))}


Values = Sequence[float | None]


def bars(
    axes: Axes, groups: Sequence[str], ours: Mapping[str, Values], published: Mapping[str, Values] | None = None
) -> None:
    """Draw a bar per group and series, and the published value as a hollow diamond over it.

    A series called like another, a comma and something more has the other's colour, hatched.
    """
    plain = [name for name in ours if not any(name.startswith(f"{other}, ") for other in ours)]
    width = 0.8 / max(len(ours), 1)
    for number, (name, values) in enumerate(ours.items()):
        places = np.arange(len(groups)) + (number - (len(ours) - 1) / 2) * width
        base = plain.index(next(other for other in plain if f"{name}, ".startswith(f"{other}, ")))
        look = fill(base, variant=name != plain[base])
        axes.bar(places, _floats(values), width * 0.92, **look, edgecolor="white", lw=0, label=name)
        printed = _floats((published or {}).get(name, []))
        if len(printed) and not np.isnan(printed).all():
            axes.scatter(places, printed, s=26, marker="D", facecolors="white", edgecolors="black", zorder=3)
    if any(value is not None for values in (published or {}).values() for value in values):
        axes.scatter([], [], s=26, marker="D", facecolors="white", edgecolors="black", label="published")
    axes.set_xticks(range(len(groups)), groups)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def lines(axes: Axes, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str) -> None:
    """Draw named curves."""
    for number, (name, (across, up)) in enumerate(curves.items()):
        axes.plot(across, up, label=name, **style(number), markevery=max(1, len(across) // 12))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if x == "round":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=7, frameon=False)


def heat_map(axes: Axes, matrix: NDArray[np.float64], across: Sequence[object], down: Sequence[object]) -> None:
    """Draw a matrix of weights in [0, 1], with its numbers where there is room."""
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    axes.set_xticks(range(len(across)), [str(each) for each in across], fontsize=7)
    axes.set_yticks(range(len(down)), [str(each) for each in down], fontsize=7)
    axes.grid(visible=False)
    if matrix.size <= 150:
        for i, j in np.ndindex(matrix.shape):
            colour = "white" if matrix[i, j] < 0.5 else "black"
            axes.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=6, color=colour)
    assert axes.figure is not None
    axes.figure.colorbar(image, ax=axes, shrink=0.85)


def _floats(values: Values) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
