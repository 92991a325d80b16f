"""The named parts of a model: the vocabulary in which a method says what travels and what stays."""

from __future__ import annotations

from enum import Flag, auto


class Parts(Flag):
    """A set of parts. Combine with `|`, take away with `& ~`; iterate for the single ones."""

    NONE = 0
    BACKBONE = auto()
    """All stages: everything but the exits."""
    SHALLOW_EXITS = auto()
    """Every exit but the last; empty in a single-exit network."""
    LAST_EXIT = auto()
    STATISTICS = auto()
    """Running means and variances of BatchNorm and InstanceNorm: no parameters, and empty where none are kept."""

    EXITS = SHALLOW_EXITS | LAST_EXIT
    MODEL = BACKBONE | EXITS
    """Everything that trains."""

    @property
    def key(self) -> str:
        """Name of a single part in messages and files."""
        assert self.name is not None
        return self.name.lower()
