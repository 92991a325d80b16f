"""Whatever an error says fits into a sentence."""

from __future__ import annotations

from xfed.data.raw.reasons import reason


def test_one_line_that_fits_into_a_sentence() -> None:
    assert reason(ValueError("cannot be opened:\n- method gz\n- method tar")) == "cannot be opened"
    assert reason(EOFError()) == "EOFError"
