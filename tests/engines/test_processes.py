"""Worker processes: what they pass on, and what happens when one dies or raises."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.bits import differences, spy
from tests.conftest import tiny
from xfed import InputError, Run, run
from xfed.engines import processes
from xfed.engines.processes import cause_of_death, worker_devices
from xfed.engines.workers import segments
from xfed.engines.workers.process import Worker
from xfed.errors import ClientError
from xfed.evaluation.summary import RoundAccuracy
from xfed.federation.watching import Watcher
from xfed.protocol.words import Task
from xfed.runs.records import RoundRecord

UNRULY = '''
import os, signal
from pathlib import Path
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.protocol.algorithm import method
import time


@method("unruly")
class Unruly(FedPer):
    """FedPer with a client that misbehaves."""

    class Settings(BaseSettings):
        how: str = "well"
        marker: str = ""

    def train(self, client, received):
        if client.id == 3 and client.round == 2:
            if self.settings.how == "sleeps":
                time.sleep(60)
                Path(self.settings.marker).touch()
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

    def carry_out(how: str, engine: str = "processes", **more: Any) -> Run:
        marker = str(tmp_path / "marker") if how in ("dies once", "sleeps") else ""
        settings = {"how": how, "marker": marker}
        return train(how, method="unruly", plugin=plugin, engine=engine, workers=2, sample=1.0, unruly=settings, **more)

    return carry_out


def test_a_worker_that_dies_is_replaced_with_the_same_bits(unruly: Callable[..., Run], tmp_path: Path) -> None:
    disturbed = unruly("dies once")
    assert (tmp_path / "marker").exists()
    assert differences(unruly("well", engine="serial"), disturbed) == []


NORMALISED = '''
from torch import nn
from xfed.components import BaseSettings
from xfed.models.network import ModelSource, model
from xfed.models.wrap import split


@model("normalised")
class Normalised(ModelSource):
    """Running statistics of a kind that is not BatchNorm."""

    class Settings(BaseSettings):
        pass

    def build(self, input_shape, classes, exits):
        norm = nn.InstanceNorm2d(4, track_running_stats=True)
        layers = [nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 4, 3)]
        return split(nn.Sequential(*layers), [3], classes, input_shape, exits)
'''


def test_running_statistics_of_any_kind_stay_with_their_client(train: Callable[..., Run], tmp_path: Path) -> None:
    plugin = tmp_path / "normalised.py"
    plugin.write_text(NORMALISED)
    alone, together = (
        train(name, model="normalised", plugin=plugin, sample=1.0, **place)
        for name, place in (("serial", {"engine": "serial"}), ("two", {"engine": "processes", "workers": 2}))
    )
    assert differences(alone, together) == []


def test_a_task_that_keeps_killing_workers_is_named(unruly: Callable[..., Run]) -> None:
    sentence = "client 3 in round 2 died 3 times with its worker, which was killed by SIGKILL, .* out-of-memory killer"
    with pytest.raises(ClientError, match=sentence):
        unruly("dies always")


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_an_error_names_the_client_and_the_cause(unruly: Callable[..., Run], engine: str) -> None:
    with pytest.raises(ClientError, match=r"(?s)client 3 in round 2.*unruly indeed"):
        unruly("raises", engine=engine)


@pytest.mark.parametrize("how", ["raises", "dies always", "sleeps"])
def test_a_round_survives_a_client_that_fails(unruly: Callable[..., Run], how: str) -> None:
    run = unruly(how, on_failure="drop", rounds=3, processes={"timeout": 8.0})
    failed = [(record.round, record.failed, record.replies) for record in run.records()]
    assert failed == [(1, (), 6), (2, (3,), 5), (3, (), 6)]
    reason = {"raises": "unruly indeed", "dies always": "died 3 times", "sleeps": "did not answer within 8 s"}[how]
    assert reason in run.records()[1].reasons[0]


def test_two_plugins_of_one_name_both_reach_the_workers(train: Callable[..., Run], tmp_path: Path) -> None:
    files = []
    for number, source in enumerate((UNRULY.replace('"unruly"', '"first"'), UNRULY.replace('"unruly"', '"second"'))):
        files.append(tmp_path / str(number) / "same.py")
        files[-1].parent.mkdir()
        files[-1].write_text(source)
    run = train(method="first", plugin=tuple(files), engine="processes", workers=1, rounds=1)
    assert [path.name for path in run.directory.plugin_files()] == ["0-same.py", "1-same.py"]


def test_no_shared_memory_is_left_behind(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = spy(monkeypatch, segments, "SharedMemory")  # those this process made, and those of workers it opened
    train(engine="processes", workers=2, rounds=1)
    names = {segment.name for segment in opened}
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


def test_one_worker_per_core_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert worker_devices("cpu", None) == ["cpu", "cpu", "cpu"]
    assert worker_devices("cpu", 1) == ["cpu"]
    assert worker_devices("cuda", None) == ["cuda:0", "cuda:1"]
    assert worker_devices("cuda", 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert worker_devices("cuda:1", None) == ["cuda:1"]
    assert worker_devices("mps", None) == ["mps"]


@pytest.mark.slow
def test_a_killed_fork_server_costs_a_restart_of_workers(train: Callable[..., Run]) -> None:
    """Killed in every round together with all workers: each time, a new server and new workers."""
    undisturbed = train("undisturbed")

    class Killer(Watcher):
        killed: ClassVar[list[int]] = []

        def round_ended(self, record: RoundRecord, accuracy: RoundAccuracy | None) -> None:
            server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
            self.killed.append(server)
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGKILL)
            os.kill(server, signal.SIGKILL)

    out = undisturbed.path.with_name("disturbed")
    disturbed = run(tiny(out=out, engine="processes", workers=2), progress=False, watchers=[Killer()])
    assert len(set(Killer.killed)) == 4, "each was another one"
    assert differences(undisturbed, disturbed) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "SIGKILL, most likely by the system's out-of-memory killer: fewer --workers, a smaller --batch-size or"),
        (-7, "was killed by SIGBUS"),
        (3, "ended with exit code 3"),
    ],
)
def test_the_cause_of_a_death_is_named(code: int, words: str) -> None:
    assert words in cause_of_death(code)


def test_who_is_at_work_when_a_run_ends_early_is_not_waited_for(
    unruly: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give, interrupted = Worker.give, []

    def give_and_interrupt(worker: Worker, tasks: Sequence[Task]) -> None:
        give(worker, tasks)
        if (tasks[0].client, tasks[0].round) == (3, 2):
            interrupted.append(worker.process)
            raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "give", give_and_interrupt)
    monkeypatch.setattr(processes, "PARTING_SECONDS", 600.0)
    with pytest.raises(KeyboardInterrupt):
        unruly("sleeps")
    assert not (tmp_path / "marker").exists(), "the client would have slept for a minute"
    assert [process.exitcode for process in interrupted] == [-signal.SIGKILL]
    assert set(interrupted) & set(multiprocessing.active_children()) == set()


@pytest.mark.parametrize(
    ("words", "advice"), [("AF_UNIX path too long", "set TMPDIR to a shorter one"), ("no", "is there memory for one")]
)
def test_why_no_worker_starts(
    train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, words: str, advice: str
) -> None:
    def fail(worker: Worker) -> None:
        raise OSError(words)

    monkeypatch.setattr(Worker, "_start", fail)
    with pytest.raises(ClientError, match=f"no worker process can be started.*{advice}"):
        train(engine="processes", workers=1)
