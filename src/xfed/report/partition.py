"""The clients × classes picture of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xfed.data.dealing.partition import Partition
from xfed.data.dealing.ways import Indices
from xfed.errors import InputError
from xfed.files import whole

MOST_TICKS = 40


def draw_partition(partition: Partition, labels: Indices, classes: Sequence[str], path: Path) -> None:
    """Draw how many samples of each class each client holds (colour) and in all (bars above)."""
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    kind = path.suffix.removeprefix(".").lower()
    allowed = sorted(FigureCanvasBase.get_supported_filetypes())
    if kind not in allowed:
        raise InputError(f"figure {str(path)!r} has no known ending; allowed: {', '.join(allowed)}")
    counts = partition.class_counts(labels, len(classes))
    clients = len(partition)
    figure = Figure(figsize=(np.clip(0.12 * clients + 3, 6, 16), np.clip(0.14 * len(classes) + 2.5, 4, 11)))
    figure.set_layout_engine("constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, np.clip(0.12 * len(classes), 3, 8)])
    above.stairs(counts.sum(1), np.arange(clients + 1) - 0.5, fill=True, color="0.55")
    above.set_ylabel("samples")
    above.spines[["top", "right"]].set_visible(False)
    seen = np.ma.masked_equal(counts.T, 0)
    norm = PowerNorm(0.5, vmin=0, vmax=counts.max())
    image = below.imshow(seen, aspect="auto", interpolation="nearest", cmap="viridis_r", norm=norm)
    figure.colorbar(image, ax=below, label="samples of the class", pad=0.01)
    below.set_xlabel("client")
    if len(classes) <= MOST_TICKS:
        below.set_yticks(range(len(classes)), classes)
    else:
        below.set_ylabel("class")
    below.set_xticks(range(0, clients, -(-clients // MOST_TICKS)))
    below.set_xlim(-0.5, clients - 0.5)
    with whole(path) as temporary:
        figure.savefig(temporary, dpi=150, format=kind)
