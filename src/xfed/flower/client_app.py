"""The ClientApp: Flower starts it anew for every message; all it knows is in the node's folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from xfed.errors import InputError
from xfed.flower.node import Node
from xfed.flower.wire import from_records, to_records
from xfed.protocol.words import Briefing, EvaluateTask, TrainTask

app = ClientApp()


def _node(context: Context) -> Node:
    folder = context.node_config.get("folder")
    if not isinstance(folder, str):
        raise InputError("the SuperNode was started without --node-config 'folder=\"...\"'")
    return Node.open(Path(folder))


def _federation(message: Message) -> str:
    return str(message.content.config_records["xfed"]["federation"])


@app.query()
def join(message: Message, context: Context) -> Message:
    """Introduce the node, or take a briefing."""
    node, federation = _node(context), _federation(message)
    if "words" in message.content.config_records["xfed"]:
        [briefing] = from_records(message.content, federation)
        assert isinstance(briefing, Briefing)
        node.take_briefing(federation, briefing)
    said = ConfigRecord({"federation": federation, "introduction": json.dumps(asdict(node.introduce(federation)))})
    return Message(RecordDict({"xfed": said}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the node."""
    return _work(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate on the node."""
    return _work(message, context)


def _work(message: Message, context: Context) -> Message:
    federation = _federation(message)
    [task] = from_records(message.content, federation)
    assert isinstance(task, TrainTask | EvaluateTask)
    return Message(to_records(federation, [_node(context).answer(federation, task)]), reply_to=message)
