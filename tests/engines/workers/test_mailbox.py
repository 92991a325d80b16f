"""Words through shared memory: nothing is copied twice, and the segment grows as needed."""

from __future__ import annotations

import json
import signal
from multiprocessing.shared_memory import SharedMemory

import pytest
import torch

from xfed.engines.workers.mailbox import Inbox, Outbox
from xfed.engines.workers.segments import SHARED_MEMORY
from xfed.protocol.message import Message
from xfed.protocol.words import ClientState


def state(client: int, tensors: dict[str, torch.Tensor], **values: int) -> ClientState:
    return ClientState(client, 1, Message(tensors, values))


def test_mailbox_grows_and_does_not_copy_twice() -> None:
    outbox, inbox = Outbox(), Inbox()
    try:
        shared = torch.arange(5.0)
        first = outbox.put([state(0, {"a": shared, "b": torch.ones(3)}, n=1)])
        [read] = inbox.read(first)
        assert read.tensors.tensors["a"].tolist() == [0, 1, 2, 3, 4]
        assert read.tensors.values == {"n": 1}
        shared += 1  # not told: the same object counts as the same content
        [read] = inbox.read(outbox.put([state(0, {"a": shared, "b": torch.zeros(3)})]))
        assert read.tensors.tensors["a"].tolist() == [0, 1, 2, 3, 4]
        assert read.tensors.tensors["b"].tolist() == [0, 0, 0]
        large = torch.rand(100_000)
        words = [state(0, {"a": large, "empty": torch.zeros(0, 3)}), state(1, {"b": large, "c": shared})]
        letter = outbox.put(words)
        assert len(json.loads(letter)["slots"]) == 3, "what two words hold is laid out once"
        again, other = inbox.read(letter)
        assert torch.equal(other.tensors.tensors["b"], large)
        assert torch.equal(other.tensors.tensors["c"], shared)
        assert torch.equal(again.tensors.tensors["a"], large)
        assert again.tensors.tensors["empty"].shape == (0, 3)
        [kept, _] = inbox.read(letter, copy=True)
        outbox.put([state(0, {"a": torch.zeros(100_000)})])
        assert torch.equal(kept.tensors.tensors["a"], large), "a copy outlives the next letter"
        del read, again, other
    finally:
        inbox.close()
        outbox.close()


@pytest.mark.parametrize("grown", [False, True])
def test_an_interrupt_while_memory_is_freed_waits(grown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half freed, it would be freed once more when the worker is closed, and that fails."""
    outbox, unlink, names = Outbox(), SharedMemory.unlink, []

    def interrupted(segment: SharedMemory) -> None:
        names.append(segment.name)
        signal.raise_signal(signal.SIGINT)
        unlink(segment)

    outbox.put([state(0, {"a": torch.ones(3)})])
    monkeypatch.setattr(SharedMemory, "unlink", interrupted)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            outbox.put([state(0, {"a": torch.ones(100_000)})]) if grown else outbox.close()
    finally:
        signal.signal(signal.SIGINT, handler)
        monkeypatch.undo()
    outbox.close()
    assert len(names) == 1, "freed once"
    assert not (SHARED_MEMORY / names[0]).exists()
