"""Sets of parts, and their names."""

from __future__ import annotations

from xfed.models.parts import Parts


def test_sets_of_parts() -> None:
    assert list(Parts.MODEL) == [Parts.BACKBONE, Parts.SHALLOW_EXITS, Parts.LAST_EXIT]
    assert Parts.MODEL & ~Parts.EXITS is Parts.BACKBONE
    assert Parts.STATISTICS not in Parts.MODEL
    assert not Parts.NONE


def test_keys_name_single_parts() -> None:
    assert [part.key for part in Parts.MODEL | Parts.STATISTICS] == [
        "backbone", "shallow_exits", "last_exit", "statistics",
    ]  # fmt: skip
