"""A Grid without Flower's programs: messages go straight to the ClientApp, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from tests.conftest import TINY
from xfed.flower import client_app
from xfed.flower.project import write_node

CLIENTS = 4
DATA = {"dataset": "digits", "clients": CLIENTS, "alpha": 1.0, "seed": 1}
CONFIG: dict[str, Any] = {
    name: TINY[name] for name in ("rounds", "epochs", "batch_size", "lr", "sample", "eval_every")
} | {"clients": CLIENTS, "convnet.width": 4, "rounds": 2, "federation.min-nodes": 2, "federation.wait": 1.0}


@dataclass
class LocalGrid:
    """Nodes by number; `meddle` may replace a reply, or swallow it."""

    nodes: dict[int, Path]
    meddle: Callable[[Message, Message], Message | None] = lambda message, reply: reply
    pushed: list[Message] = field(default_factory=list)
    _open: dict[str, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what Flower sets in its processes

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            number = f"message-{len(self.pushed)}"
            message.metadata.__dict__["_message_id"] = number
            self.pushed.append(message)
            self._open[number] = message
            numbers.append(number)
        return numbers

    def pull_messages(self, numbers: Iterable[str]) -> Iterable[Message]:
        for number in list(numbers):
            message = self._open[number]
            node = message.metadata.dst_node_id
            if node not in self.nodes:
                yield Message(Error(5, "node unavailable"), reply_to=message)
                continue
            context = Context(1, node, {"folder": str(self.nodes[node])}, RecordDict(), {})
            try:
                reply = client_app.app(message, context)
            except Exception as error:
                reply = Message(Error(2, repr(error)), reply_to=message)
            changed = self.meddle(message, reply)
            if changed is not None:
                yield changed


def make_nodes(root: Path, numbers: Iterable[int] = range(CLIENTS), **settings: Any) -> dict[int, Path]:
    """Write the folders of nodes; Flower's own numbers of them are large."""
    nodes = {}
    for number in numbers:
        write_node(root / str(number), **{"data": DATA, "client": number, **settings})
        nodes[1000 + number] = root / str(number)
    return nodes
