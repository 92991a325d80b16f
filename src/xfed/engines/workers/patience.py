"""How long workers may take: a limit is for one client, and those of a group are done one after another."""

from __future__ import annotations

from collections.abc import Sequence

from xfed.protocol.words import Failed, Task


def deadline(since: float, tasks: Sequence[Task], limit: float) -> float:
    """Say until when tasks that were begun together must be done."""
    return since + limit * len(tasks)


def late(tasks: Sequence[Task], limit: float) -> list[Failed]:
    """Say that tasks were not done in time."""
    together = f" for each of {len(tasks)} clients" if len(tasks) > 1 else ""
    return [Failed(task.client, f"did not answer within {limit:g} s{together}", "timeout") for task in tasks]
