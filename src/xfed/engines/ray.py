"""Worker actors on a Ray cluster, or on this machine without any set-up.

A worker keeps one network and computes on one thread. What many tasks share crosses to a machine once, through Ray's
object store; a client's own state travels beside its task. A worker or machine that disappears costs a retry, one that
joins is used. Work depends on the task alone, so the bits are those of every other engine.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from xfed.components import BaseSettings
from xfed.engines.workers.patience import deadline, late
from xfed.engines.workers.place import Place, from_arrays, to_arrays
from xfed.errors import ClientError, InputError
from xfed.federation.carrying import keep_states, with_states
from xfed.protocol.engine import GroupEngine, Job, engine
from xfed.protocol.words import Evaluated, Failed, Task, Trained, frame, unframe

DEATHS_PER_TASK = 3
SHELF = 64  # tensors that stay in the object store between tasks of a round
FALSE_STARTS = 20  # of workers in a run
LOOK_ROUND_SECONDS = 2.0  # how often machines that joined or are gone are looked for
START_SECONDS = 900.0  # until some worker is there; a cluster may have to start machines first
FETCH_SECONDS = 120.0  # for an answer that is ready to cross from its machine


def import_ray(address: str | None) -> Any:
    """Import Ray, which only this engine needs; it reports nothing home, and on one machine it stays on loopback."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None or address.startswith(("127.0.0.1:", "localhost:")):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # read at import: 0 means loopback
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("engine 'ray' needs the package ray; install it with: pip install 'xfed[ray]'") from None
    return ray


def _knock(address: str) -> None:
    """Make sure that somebody listens at an address that names a host and a port."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


class Shelf:
    """Tensors in Ray's object store, each put there once as long as tasks use it."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._refs: OrderedDict[int, tuple[Tensor, Any]] = OrderedDict()

    def put(self, tensor: Tensor) -> Any:
        """Give the reference of a tensor."""
        if id(tensor) not in self._refs:
            self._refs[id(tensor)] = (tensor, self._ray.put(tensor.contiguous().numpy()))
            if len(self._refs) > SHELF:
                self._refs.popitem(last=False)
        self._refs.move_to_end(id(tensor))
        return self._refs[id(tensor)][1]

    def clear(self) -> None:
        """Let go of everything; what running tasks need stays until they are done."""
        self._refs.clear()


@dataclass(eq=False)
class _Worker:
    """One actor, what it has been asked, and what it is doing."""

    actor: Any
    awaited: Any
    """What it will say next: that it has its data, or results; nothing while it is free."""
    machine: str | None = None
    """Where it is, once it has its data and is ready."""
    doing: Sequence[Task] = ()
    since: float = 0.0


@engine("ray")
class RayEngine(GroupEngine):
    """Workers on a Ray cluster, one per core or GPU; without an address, on this machine."""

    class Settings(BaseSettings):
        address: str | None = Field(
            None, description="a Ray cluster: its head's host:port, or auto for the one this machine is part of"
        )
        gpus: PositiveFloat = Field(
            1.0, description="with device cuda: GPUs per worker; 0.5 lets two workers share one"
        )
        timeout: PositiveFloat | None = Field(
            None, description="seconds a client may take for its task; its worker is then replaced, and it has failed"
        )

    settings: Settings

    def open(self, job: Job) -> None:
        """Join the cluster, or start one on this machine."""
        self._ray = import_ray(self.settings.address)
        self._job = job
        self._on_gpu = torch.device(job.device).type == "cuda"
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._join()
        self._shelf = Shelf(self._ray)
        self._workers: list[_Worker] = []
        self._looked = 0.0
        self._gone: set[str] = set()
        """Machines that the cluster has given up on; that their workers are lost with them may never be reported."""
        self._false_starts = 0
        plain, tensors = frame([job.briefing])
        self._briefing = self._ray.put((plain, to_arrays(tensors)))
        self._partition = self._ray.put(replace(job.partition, file=None))
        self._data: Any = None
        resources = {"num_cpus": 0 if self._on_gpu else 1, "num_gpus": self.settings.gpus if self._on_gpu else 0}
        self._place = self._ray.remote(Place).options(**resources)

    def _join(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.settings.address is None:
            cores = self._job.workers or os.cpu_count()
            try:
                self._ray.init("local", num_cpus=cores, include_dashboard=False, **quiet)
            except Exception as error:  # Ray has no kind of its own for this
                self._ray.shutdown()
                raise ClientError(f"Ray did not start on this machine ({_first_line(error)})") from None
            if self._on_gpu and not self._ray.cluster_resources().get("GPU"):
                self._ray.shutdown()
                raise InputError(f"device is {self._job.device!r}, but Ray finds no GPU on this machine")
            return
        try:
            _knock(self.settings.address)  # Ray itself would go on trying for minutes
            self._ray.init(address=self.settings.address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            reason = f"no Ray cluster answers ({_first_line(error)})"
            raise InputError(f"ray.address is {self.settings.address!r}: {reason}") from None

    def close(self) -> None:
        """End all workers, and the cluster if it was started here."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers = []
        self._shelf.clear()
        if self._ours:
            self._ray.shutdown()

    # Dealing out

    def results(self, groups: Iterable[Sequence[Task]]) -> Iterator[Trained | Evaluated | Failed]:
        """Deal groups of tasks out one by one, each to the next worker that is free."""
        self._shelf.clear()
        waiting = iter(groups)
        again: deque[Sequence[Task]] = deque()
        deaths: Counter[int] = Counter()
        started = time.monotonic()
        following: Sequence[Task] | None = None
        while True:
            self._staff()
            for worker in [None, *(worker for worker in self._workers if worker.machine and not worker.doing)]:
                if worker is not None and following is not None:
                    self._give(worker, following)
                    following = None
                if following is None:
                    following = again.popleft() if again else next(waiting, None)
            if following is None and not any(worker.doing for worker in self._workers):
                return
            if not any(worker.machine for worker in self._workers) and time.monotonic() - started > START_SECONDS:
                raise ClientError(f"no worker of the Ray cluster was there within {START_SECONDS:g} s")
            awaited = {worker.awaited: worker for worker in self._workers if worker.awaited is not None}
            done, _ = self._ray.wait(list(awaited), timeout=self._patience())
            lost: dict[_Worker, Exception] = {
                worker: ClientError(f"machine {worker.machine} is gone")
                for worker in self._workers
                if worker.machine in self._gone
            }
            for worker in (awaited[reference] for reference in done if awaited[reference] not in lost):
                try:
                    yield from self._take(worker)
                except self._ray.exceptions.RayError as error:
                    lost[worker] = error
            for worker, cause in lost.items():
                self._dismiss(worker)
                if worker.machine is None:
                    self._bear_false_start(cause)
                if not worker.doing:
                    continue
                deaths[worker.doing[0].client] += 1
                if deaths[worker.doing[0].client] < DEATHS_PER_TASK:
                    again.append(worker.doing)
                else:
                    yield from _lost(worker.doing, cause)
            yield from self._overdue()

    def _give(self, worker: _Worker, tasks: Sequence[Task]) -> None:
        plain, tensors = frame(with_states(tasks, self._job.states))
        worker.doing, worker.since = tasks, time.monotonic()
        worker.awaited = worker.actor.answer.remote(plain, *map(self._shelf.put, tensors))

    def _take(self, worker: _Worker) -> list[Trained | Evaluated | Failed]:
        """Receive what a worker says: results, or whether it could open the data where it is."""
        said = self._ray.get(worker.awaited, timeout=FETCH_SECONDS)
        worker.awaited = None
        if worker.doing:
            worker.doing = ()
            return keep_states(unframe(said[0], from_arrays(said[1], copy=True)), self._job.states)
        if said is not None:
            worker.machine = said
        else:
            self._data = self._data or self._ray.put(self._job.dataset.to_bytes())
            worker.awaited = worker.actor.take_data.remote(self._data)
        return []

    # Workers

    def _staff(self) -> None:
        """Look round; hire up to one worker per core or GPU as there are now. One that finds no room yet waits."""
        if self._workers and time.monotonic() - self._looked < LOOK_ROUND_SECONDS:
            return
        self._looked = time.monotonic()
        self._gone = {node["NodeID"] for node in self._ray.nodes() if not node["Alive"]}
        resources = self._ray.cluster_resources()
        room = resources.get("GPU", 0) / self.settings.gpus if self._on_gpu else resources.get("CPU", 0)
        wanted = self._job.workers or max(1, int(room))
        while len(self._workers) < wanted:
            device = "cuda" if self._on_gpu else self._job.device
            actor = self._place.remote(self._briefing, self._partition, device)
            self._workers.append(_Worker(actor, actor.open_data.remote(self._job.dataset.reopen)))

    def _bear_false_start(self, error: Exception) -> None:
        """Live with a worker that never came to work, unless they keep doing so."""
        self._false_starts += 1
        if self._false_starts >= FALSE_STARTS:
            raise ClientError(f"{FALSE_STARTS} workers of the Ray cluster did not start ({_first_line(error)})")

    def _dismiss(self, worker: _Worker) -> None:
        """Let go of a worker that is gone or too slow; another is hired when the cluster is next looked at."""
        self._ray.kill(worker.actor)
        self._workers.remove(worker)
        self._looked = 0.0

    def _patience(self) -> float:
        limit = self.settings.timeout
        busy = [worker for worker in self._workers if worker.doing]
        if limit is None or not busy:
            return LOOK_ROUND_SECONDS
        first = min(deadline(worker.since, worker.doing, limit) for worker in busy)
        return max(0.0, min(LOOK_ROUND_SECONDS, first - time.monotonic()))

    def _overdue(self) -> Iterator[Failed]:
        """Replace workers that took too long."""
        limit = self.settings.timeout
        for worker in list(self._workers):
            if limit is not None and worker.doing and time.monotonic() >= deadline(worker.since, worker.doing, limit):
                self._dismiss(worker)
                yield from late(worker.doing, limit)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _lost(tasks: Sequence[Task], error: Exception) -> list[Failed]:
    reason = f"was lost {DEATHS_PER_TASK} times with its worker ({type(error).__name__}: {_first_line(error)})"
    return [Failed(task.client, reason, "lost") for task in tasks]
