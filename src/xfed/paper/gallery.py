"""One page of the tables and figures that `xfed paper run` wrote into a folder, to look at them together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from xfed.files import refuse_foreign, write_text
from xfed.paper.catalogue import ARTEFACTS
from xfed.paper.scales import SCALES

TITLE = "# Tables and figures of the paper"
MADE = re.compile(rf"([a-z-]+)-(?:{'|'.join(SCALES)})(?:-\d+)?")


def made_in(folder: Path) -> list[tuple[str, Path]]:
    """Find names with the folders of their tables and figures, in the paper's order."""
    order = list(ARTEFACTS)
    homes = [path.parent for path in folder.glob("*/table.md")]
    found = [(match[1], home) for home in homes if (match := MADE.fullmatch(home.name)) and match[1] in order]
    return sorted(found, key=lambda pair: (order.index(pair[0]), pair[1]))


def write_gallery(folder: Path) -> list[Path]:
    """Write `README.md`: every table with its figure."""
    page = folder / "README.md"
    refuse_foreign(page, TITLE)
    write_text(page, "\n".join([TITLE, "", *_sections(folder)]))
    return [page]


def _sections(folder: Path) -> Iterator[str]:
    for name, home in made_in(folder):
        for path in sorted(home.glob("*.md"), key=lambda path: (path.stem != "table", path.stem)):
            title, _, text = path.read_text(encoding="utf-8").strip().partition("\n")
            yield from (title, "")
            if path.stem == "table":
                yield from (f"![{name}]({home.name}/figure.svg)", "")
                text += f" Made by `xfed paper run {name}`."
            yield from (text.strip(), "")
