"""Worker processes: what they pass on, and what happens when one dies or raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import tiny
from tests.runs import differences, spy
from xfed import InputError, Run
from xfed.assembly import worker_devices
from xfed.engines import mailbox
from xfed.engines.mailbox import Inbox, Outbox
from xfed.errors import ClientError
from xfed.protocol.message import Message

UNRULY = '''
import os, signal
from pathlib import Path
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.protocol.algorithm import method


@method("unruly")
class Unruly(FedPer):
    """FedPer with a client that misbehaves."""

    class Settings(BaseSettings):
        how: str = "well"
        marker: str = ""

    def train(self, client, received):
        if client.id == 3 and client.round == 2:
            if self.settings.how == "raises":
                raise ZeroDivisionError("unruly indeed")
            once = self.settings.how == "dies once" and not Path(self.settings.marker).exists()
            if once or self.settings.how == "dies always":
                if self.settings.marker:
                    Path(self.settings.marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().train(client, received)
'''


@pytest.fixture
def unruly(tmp_path: Path, train: Callable[..., Run]) -> Callable[..., Run]:
    plugin = tmp_path / "unruly.py"
    plugin.write_text(UNRULY)

    def carry_out(how: str, engine: str = "processes") -> Run:
        marker = str(tmp_path / "marker") if how == "dies once" else ""
        settings = {"how": how, "marker": marker}
        return train(how, method="unruly", plugin=plugin, engine=engine, workers=2, sample=1.0, unruly=settings)

    return carry_out


def test_a_worker_that_dies_is_replaced_with_the_same_bits(unruly: Callable[..., Run], tmp_path: Path) -> None:
    disturbed = unruly("dies once")
    assert (tmp_path / "marker").exists()
    assert differences(unruly("well", engine="serial"), disturbed) == []


def test_a_task_that_keeps_killing_workers_is_named(unruly: Callable[..., Run]) -> None:
    with pytest.raises(ClientError, match="client 3 in round 2 died 3 times"):
        unruly("dies always")


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_an_error_names_the_client_and_the_cause(unruly: Callable[..., Run], engine: str) -> None:
    with pytest.raises(ClientError, match=r"(?s)client 3 in round 2.*unruly indeed"):
        unruly("raises", engine=engine)


def test_no_shared_memory_is_left_behind(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    segments = spy(monkeypatch, mailbox, "SharedMemory")  # those this process made, and those of workers it opened
    train(engine="processes", workers=2, rounds=1)
    names = {segment.name for segment in segments}
    assert len(names) >= 4, "a segment for either direction and worker"
    assert names & set(os.listdir("/dev/shm")) == set()


def test_a_method_of_the_running_script_needs_a_file(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xfed.algorithms.fedper import FedPer

    monkeypatch.setattr(FedPer, "__module__", "__main__")
    with pytest.raises(InputError, match=r"'fedper' is defined in the running script.*plugin.*serial"):
        train(method="fedper", engine="processes")
    assert not (tmp_path / "run").exists()


def test_mailbox_grows_and_does_not_copy_twice() -> None:
    outbox, inbox = Outbox(), Inbox()
    try:
        shared = torch.arange(5.0)
        first = outbox.put([Message({"a": shared, "b": torch.ones(3)}, {"n": 1})])
        [read] = inbox.read(first)
        assert read.tensors["a"].tolist() == [0, 1, 2, 3, 4]
        assert read.values == {"n": 1}
        shared += 1  # not told: the same object counts as the same content
        [read] = inbox.read(outbox.put([Message({"a": shared, "b": torch.zeros(3)})]))
        assert read.tensors["a"].tolist() == [0, 1, 2, 3, 4]
        assert read.tensors["b"].tolist() == [0, 0, 0]
        large = torch.rand(100_000)
        letter = outbox.put([Message({"a": large, "empty": torch.zeros(0, 3)}), Message({"b": large, "c": shared})])
        assert letter.slots[0]["a"] == letter.slots[1]["b"]  # laid out once for both
        again, other = inbox.read(letter)
        assert torch.equal(other.tensors["b"], large)
        assert torch.equal(other.tensors["c"], shared)
        assert torch.equal(again.tensors["a"], large)
        assert again.tensors["empty"].shape == (0, 3)
        del read, again, other
    finally:
        inbox.close()
        outbox.close()


def test_one_worker_per_core_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert worker_devices(tiny()) == ["cpu", "cpu", "cpu"]
    assert worker_devices(tiny(workers=1)) == ["cpu"]
    assert worker_devices(tiny().model_copy(update={"device": "cuda"})) == ["cuda:0", "cuda:1"]
    assert worker_devices(tiny(workers=3).model_copy(update={"device": "cuda"})) == ["cuda:0", "cuda:1", "cuda:0"]
    assert worker_devices(tiny().model_copy(update={"device": "cuda:1"})) == ["cuda:1"]
    assert worker_devices(tiny().model_copy(update={"device": "mps"})) == ["mps"]
