"""A limit is for one client: a group has as many of them."""

from __future__ import annotations

from xfed.engines.workers.patience import deadline, late
from xfed.protocol.message import Message
from xfed.protocol.words import TrainTask

TASKS = [TrainTask(client, 1, Message(), None) for client in (4, 7, 9)]


def test_a_group_may_take_as_long_as_its_clients_one_by_one() -> None:
    assert deadline(10.0, TASKS[:1], 4.0) == 14.0
    assert deadline(10.0, TASKS, 4.0) == 22.0


def test_who_is_late_is_told_the_limit() -> None:
    assert [(f.client, f.reason, f.failure) for f in late(TASKS[:1], 4.0)] == [
        (4, "did not answer within 4 s", "timeout")
    ]
    assert {f.reason for f in late(TASKS, 4.0)} == {"did not answer within 4 s for each of 3 clients"}
