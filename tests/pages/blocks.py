"""Read a page as its reader does: blocks in order, files to save, commands to give.

A comment right before a block says what is special about it:

- `<!-- not run: why -->`: it takes hours, a cluster or another machine; it must still parse.
- `<!-- run with: --rounds 1 -->`: the same commands with less of everything.
- `<!-- exit code 2 -->`: the command is refused, with the very words that the block shows.
- `<!-- background -->`: the last command goes on while the page does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!-- (not run|run with|exit code|background):? ?([^>]*?) ?-->\s*\Z")
SAVED = re.compile(r"[Ss]ave this as `([^`]+)`:\s*\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block, and what the page says right before it."""

    page: str
    line: int
    language: str
    content: str
    save_as: str | None = None
    directive: str | None = None
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language})"

    @property
    def commands(self) -> list[str]:
        """What stands after a `$`, lines that end in a backslash joined."""
        joined = self.content.replace("\\\n", " ")
        return [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]

    @property
    def output(self) -> list[str]:
        """What the block shows beside commands."""
        joined = self.content.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line and not line.startswith("$ ")]


def read_blocks(path: Path) -> list[Block]:
    """Find all blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    blocks = []
    for found in FENCE.finditer(text):
        before = text[: found.start()]
        comment = COMMENT.search(before)
        saved = SAVED.search(before[: comment.start()] if comment else before)
        blocks.append(
            Block(
                page=path.relative_to(ROOT).as_posix(),
                line=before.count("\n") + 1,
                language=found["language"],
                content=found["content"],
                save_as=saved[1] if saved else None,
                directive=comment[1] if comment else None,
                argument=comment[2] if comment else "",
            )
        )
    return blocks
