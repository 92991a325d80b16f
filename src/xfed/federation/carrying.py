"""Clients' states on engines whose workers keep nothing: they travel beside tasks and come back beside results."""

from __future__ import annotations

from collections.abc import Sequence

from xfed.protocol.engine import States
from xfed.protocol.message import Message
from xfed.protocol.words import ClientState, Evaluated, Failed, Task, Trained, Word


def with_states(tasks: Sequence[Task], states: States) -> list[Word]:
    """Give tasks, and after them the state of each client that has one.

    Tasks come first: what they share then lies where it lay before, and need not be copied again.
    """
    present = [(task.client, task.state) for task in tasks if task.state is not None]
    return [*tasks, *(ClientState(c, version, Message(states.read(c, version))) for c, version in present)]


def keep_states(words: Sequence[Word], states: States) -> list[Trained | Evaluated | Failed]:
    """Write the states that came back, and give the results."""
    for word in words:
        if isinstance(word, ClientState):
            states.write(word.client, word.version, word.tensors.tensors)
    return [word for word in words if isinstance(word, Trained | Evaluated | Failed)]
