"""What Flower's own Grid lets in: a SuperLink that is none hands out the objects of one reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from xfed.flower.intake import REFUSED, weighed
from xfed.flower.wire import RAW

SIZE = 6400


@dataclass
class Link:
    """Answers what a Grid asks of a SuperLink, for one reply; `change` may falsify the content of an object."""

    reply: Message
    change: Callable[[bytes], bytes] = bytes
    handed_out: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.contents = {name: each.deflate() for name, each in get_all_nested_objects(self.reply).items()}
        self.tree: ObjectTree = get_object_tree(self.reply)

    def pull_messages(self, request: Any) -> PullAppMessagesResponse:
        bare = message_to_proto(remove_content_from_message(self.reply))
        bare.metadata.message_id = self.tree.object_id
        return PullAppMessagesResponse(messages_list=[bare], message_object_trees=[self.tree])

    def pull_object(self, request: Any) -> PullObjectResponse:
        content = self.change(self.contents[request.object_id])
        self.handed_out.append(len(content))
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def as_client(self) -> Any:
        return SimpleNamespace(
            PullMessages=self.pull_messages, PullObject=self.pull_object, ConfirmMessageReceived=lambda request: None
        )


def received(limit: int, arrays: int = 1, change: Callable[[bytes], bytes] = bytes) -> tuple[Message, Link]:
    """Pull a reply with so many arrays of 6,400 bytes each."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    asked = Message(RecordDict(), 7, "train")
    asked.metadata.__dict__["_message_id"] = "asked"
    tensors = {str(n): Array("uint8", (SIZE,), RAW, bytes([n]) * SIZE) for n in range(arrays)}
    link = Link(Message(RecordDict({"tensors": ArrayRecord(tensors)}), reply_to=asked), change)
    grid = HttpGrid(token="none")
    grid._run = SimpleNamespace(run_id=1)  # type: ignore[assignment]
    grid._client = link.as_client()
    with weighed(lambda: limit):
        [reply] = grid.pull_messages(["asked"])
    assert reply.metadata.reply_to_message_id == "asked"
    return reply, link


def swollen(content: bytes) -> bytes:
    """Let an array name its one piece a thousand times."""
    head, _, body = content.partition(b"\x00")
    if not head.startswith(b"Array "):
        return content
    said = json.dumps({**json.loads(body), "arraychunk_ids": [0] * 1000}).encode()
    return b" ".join([*head.split(b" ")[:2], str(len(said)).encode()]) + b"\x00" + said


def test_what_fits_comes_in() -> None:
    reply, _ = received(limit=8000)
    assert not reply.has_error()
    assert reply.content.array_records["tensors"]["0"].data == bytes(SIZE)


def test_a_large_reply_is_given_up_before_it_is_here() -> None:
    reply, link = received(limit=20_000, arrays=200)
    assert REFUSED + "more than 20,000 bytes" in reply.error.reason
    assert sum(link.handed_out) < 100 * SIZE, "it was pulled on although it was too large already"


def test_a_reply_that_would_grow_is_not_put_together() -> None:
    reply, link = received(limit=10**6, change=swollen)
    assert sum(link.handed_out) < 20_000
    assert REFUSED + "arrays that grow to more than 1,000,000 bytes" in reply.error.reason


def test_a_reply_that_makes_no_sense_is_an_error_of_its_sender() -> None:
    reply, _ = received(limit=10**6, change=lambda content: content.replace(b"uint8", b"uint8\xff"))
    assert REFUSED + "what cannot be put together" in reply.error.reason
