"""The engine over Flower's Grid: one message per client, replies as they come, nothing waited for beyond a limit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from xfed.errors import InputError
from xfed.flower.intake import REFUSED
from xfed.flower.node import Introduction
from xfed.flower.roster import Roster, introduction_from
from xfed.flower.wire import from_records, to_records, values_of
from xfed.protocol.engine import Engine
from xfed.protocol.message import WireError
from xfed.protocol.words import Briefing, Evaluated, EvaluateTask, Failed, Task, Trained, TrainTask

LOOK_SECONDS = 0.3
TOGETHER = 16  # replies that are taken in at once: each may be a whole model
JOIN_SECONDS = 120.0
"""How long new nodes may take to introduce themselves: nobody else waits longer for them."""
GONE = {3, 4, 5, 8}
"""Flower's codes for messages that a node never answered by itself: lost, node gone, process died."""


@dataclass
class Traffic:
    """Bytes of messages, as communication figures count them, evaluation included."""

    down: int = 0
    up: int = 0


@dataclass
class FlowerEngine(Engine):
    """Runs tasks on the nodes of a Grid; data and states stay there."""

    grid: Grid
    roster: Roster
    timeout: float
    """Seconds a round, or an evaluation, waits for replies."""
    limit: int
    """Bytes of tensors that a reply may have."""
    traffic: Traffic = field(default_factory=Traffic)

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[Trained | Failed]:
        """Train clients."""
        for result in self._exchange(list(tasks), "train"):
            assert isinstance(result, Trained | Failed)
            yield result

    def evaluate(self, groups: Iterable[Sequence[EvaluateTask]]) -> Iterator[Evaluated | Failed]:
        """Evaluate clients."""
        for result in self._exchange(list(chain.from_iterable(groups)), "evaluate"):
            assert isinstance(result, Evaluated | Failed)
            yield result

    def _exchange(self, tasks: Sequence[Task], kind: str) -> Iterator[Trained | Evaluated | Failed]:
        waiting: dict[str, Task] = {}
        for task in tasks:
            node = self.roster.node(task.client)
            records = to_records(self.roster.federation, [task])
            number = None if node is None else self._push(records, node, kind, str(task.round))
            if number is None:
                yield Failed(task.client, "has left", "lost")
            else:
                self.traffic.down += task.message.nbytes
                waiting[number] = task
        for number, reply in self._replies(waiting, self.timeout):
            yield self._understood(waiting.pop(number), reply)
        for task in waiting.values():
            yield Failed(task.client, f"did not answer within {self.timeout:g} s", "timeout")

    def _push(self, records: RecordDict, node: int, kind: str, group: str) -> str | None:
        message = Message(records, node, kind, ttl=self.timeout, group_id=group)
        pushed = list(self.grid.push_messages([message]))
        return pushed[0] if pushed else None

    def _replies(self, numbers: Iterable[str], seconds: float) -> Iterator[tuple[str, Message]]:
        """Give replies as they come, by the number of the message they answer: an error's sender is the SuperLink."""
        open_numbers = set(numbers)
        deadline = time.monotonic() + seconds
        while open_numbers and time.monotonic() < deadline:
            ordered = sorted(open_numbers)
            for start in range(0, len(ordered), TOGETHER):
                for reply in self.grid.pull_messages(ordered[start : start + TOGETHER]):
                    number = reply.metadata.reply_to_message_id
                    if number in open_numbers:
                        open_numbers.remove(number)
                        yield number, reply
            time.sleep(LOOK_SECONDS)

    def _understood(self, task: Task, reply: Message) -> Trained | Evaluated | Failed:
        if reply.has_error():
            code, reason = reply.error.code, (reply.error.reason or "no reason given").strip()
            if REFUSED in reason:
                return Failed(task.client, f"was rejected: it sent {reason.partition(REFUSED)[2]}", "rejected")
            return Failed(task.client, f"failed: {reason} (Flower's code {code})", "lost" if code in GONE else "error")
        expected = Trained if isinstance(task, TrainTask) else Evaluated
        try:
            words = from_records(reply.content, self.roster.federation, self.limit)
        except WireError as error:
            return Failed(task.client, f"was rejected: it sent {error}", "rejected")
        if len(words) != 1 or not isinstance(words[0], expected | Failed) or words[0].client != task.client:
            return Failed(task.client, "was rejected: its answer is not one to its task", "rejected")
        if isinstance(words[0], Failed):
            return Failed(task.client, words[0].reason)
        answers = [words[0].upload] if isinstance(words[0], Trained) else [*words[0].traces.values()]
        self.traffic.up += sum(answer.nbytes for answer in answers)
        return words[0]

    # Joining

    def introductions(self, nodes: Iterable[int], briefing: Briefing | None = None) -> dict[int, Introduction]:
        """Ask nodes who they are, with a briefing if there is one; those that make no sense are left out."""
        if briefing is None:
            records = RecordDict({"xfed": ConfigRecord({"federation": self.roster.federation})})
        else:
            records = to_records(self.roster.federation, [briefing])
        asked = {self._push(records, node, "query", "join"): node for node in nodes}
        found = {}
        for number, reply in self._replies((each for each in asked if each is not None), JOIN_SECONDS):
            if reply.has_error():
                print(f"node {asked[number]} cannot join: {_last_line(reply.error.reason)}", flush=True)
                continue
            try:
                found[asked[number]] = introduction_from(values_of(reply.content, self.roster.federation))
            except (InputError, WireError) as error:
                print(f"node {asked[number]} cannot join: it sent {error}", flush=True)
        if briefing is not None:
            self.traffic.down += briefing.initial.nbytes * len(found)
        return found


def _last_line(reason: str | None) -> str:
    return (reason or "no reason given").strip().splitlines()[-1]


def reply_limit(model_bytes: int) -> int:
    """Tell how many bytes an answer may have: a few models, for methods that send more than one, and small change."""
    return 4 * model_bytes + 2**20
