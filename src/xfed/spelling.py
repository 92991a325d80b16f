"""Characters that an alphabet lacks (± in ASCII), spelt out: before a table is laid out, or when they are written."""

from __future__ import annotations

import codecs

SPELL_OUT = "xfed.spell_out"
"""The name by which a stream asks for it."""
SPELLINGS = {"±": "+-", "×": "x", "–": "-", "−": "-", "─": "-", "━": "-", "→": "->", "≤": "<=", "≥": ">=", "μ": "mu",
             "λ": "lambda", "α": "alpha", "ε": "eps", "δ": "delta", "●": "*", "…": "..."}  # fmt: skip


def spelt(text: str, encoding: str) -> str:
    """Spell out what an encoding lacks, so that the width of a text is that of what will be written."""
    return text.encode(encoding, SPELL_OUT).decode(encoding)


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SPELLINGS.get(character, "?") for character in lacking), error.end


codecs.register_error(SPELL_OUT, _spell_out)
