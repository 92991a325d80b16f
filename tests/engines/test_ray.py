"""Ray: two machines on one, which come and go; the bits are those of `serial`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from tests.bits import differences
from tests.conftest import tiny
from xfed import ClientError, InputError, Run, Watcher, run
from xfed.data.dealing.partition import Partition
from xfed.engines import ray as ray_engine
from xfed.engines.ray import Shelf
from xfed.engines.workers.place import from_arrays, to_arrays
from xfed.protocol.algorithm import methods
from xfed.protocol.engine import Job
from xfed.protocol.message import Message
from xfed.protocol.words import Briefing

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # loopback, silence
pytest.importorskip("ray")

WHERE = '''
import os, signal, time
from pathlib import Path
from xfed.algorithms.fedper import FedPer
from xfed.components import BaseSettings
from xfed.protocol.algorithm import method


@method("where")
class Where(FedPer):
    """FedPer whose clients leave a note of the machine that they ran on."""

    class Settings(BaseSettings):
        notes: str = ""
        seconds: float = 0.0
        dies: bool = False

    def train(self, client, received):
        import ray

        notes = Path(self.settings.notes)
        with (notes / "machines").open("a") as file:
            file.write(f"{client.round} {ray.get_runtime_context().get_node_id()}\\n")
        if self.settings.dies and client.id == 3 and not (notes / "died").exists():
            (notes / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.settings.seconds)
        return super().train(client, received)
'''


class After(Watcher):
    """Does something once a round has ended."""

    def __init__(self, round: int, deed: Callable[[], Any]) -> None:
        self.round, self.deed = round, deed

    def round_ended(self, record: Any, accuracy: Any) -> None:
        if record.round == self.round:
            self.deed()


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield started
    started.shutdown()


@pytest.fixture
def where(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "where.py").write_text(WHERE)
    return {"method": "where", "plugin": tmp_path / "where.py", "out": tmp_path / "run", "engine": "ray"}


def machines(notes: Path) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in (notes / "machines").read_text().splitlines():
        round, node = line.split()
        found.setdefault(int(round), set()).add(node)
    return found


def numbers(finished: Run) -> dict[str, torch.Tensor]:
    return finished.directory.checkpoints.read().tensors


FOUR = ("xfed", "fedper", "ditto", "fedpac")
EVERY = [each.name for each in methods if each.__module__.startswith("xfed.")]


@pytest.mark.slow
@pytest.mark.parametrize("names", [FOUR, pytest.param(EVERY, marks=pytest.mark.long)], ids=["four", "every"])
def test_methods_end_with_the_bits_of_serial_on_two_machines(
    names: Sequence[str], cluster: Any, train: Callable[..., Run]
) -> None:
    cluster.add_node(num_cpus=1)
    found = {}
    for method in names:
        settings = {"method": method, "rounds": 2}
        far = train(f"{method}-ray", engine="ray", ray={"address": cluster.address}, **settings)
        found[method] = differences(train(f"{method}-serial", **settings), far)
    assert {method: different for method, different in found.items() if different} == {}


def only_good_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray keep silent about answers that are lost, as it has been seen to do on a crowded machine."""
    import ray

    def succeeded(reference: Any) -> bool:
        try:
            ray.get(reference, timeout=10)
        except ray.exceptions.RayError:
            return False
        return True

    def wait(references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        done, _ = honest(references, timeout=timeout)
        good = [reference for reference in done if succeeded(reference)]
        if not good:
            time.sleep(0.1)
        return good, [reference for reference in references if reference not in good]

    honest = ray.wait
    monkeypatch.setattr(ray, "wait", wait)


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True])
def test_a_machine_that_dies_costs_a_retry(
    cluster: Any, where: dict[str, Any], tmp_path: Path, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if silent:
        only_good_news(monkeypatch)
    second = cluster.add_node(num_cpus=1)
    settings = {"notes": str(tmp_path), "seconds": 1.0}

    def pull_the_plug() -> None:
        threading.Timer(0.5, lambda: cluster.remove_node(second, allow_graceful=False)).start()

    experiment = tiny(**where, sample=1.0, rounds=3, where=settings, ray={"address": cluster.address})
    disturbed = run(experiment, progress=False, watchers=[After(1, pull_the_plug)])
    assert [(record.replies, record.failed) for record in disturbed.records()] == [(6, ())] * 3
    assert [len(nodes) for nodes in machines(tmp_path).values()] == [2, 2, 1]
    calm = run(tiny(method="fedper", sample=1.0, rounds=3, out=tmp_path / "calm"), progress=False)
    for name, tensor in numbers(calm).items():
        assert torch.equal(tensor, numbers(disturbed)[name])


@pytest.mark.slow
def test_a_machine_that_joins_is_used(cluster: Any, where: dict[str, Any], tmp_path: Path) -> None:
    settings = {"notes": str(tmp_path), "seconds": 1.0}
    experiment = tiny(**where, sample=1.0, rounds=5, where=settings, ray={"address": cluster.address})
    joining = After(1, lambda: cluster.add_node(num_cpus=1))
    run(experiment, progress=False, watchers=[joining])
    seen = machines(tmp_path)
    assert len(seen[1]) == 1
    assert len(seen[5]) == 2


@pytest.mark.slow
def test_without_any_cluster_and_with_a_worker_that_dies(where: dict[str, Any], tmp_path: Path) -> None:
    settings = {"notes": str(tmp_path), "dies": True}
    finished = run(tiny(**where, workers=2, sample=1.0, rounds=2, where=settings), progress=False)
    assert (tmp_path / "died").exists()
    assert [record.replies for record in finished.records()] == [6, 6]


@pytest.mark.slow
def test_data_in_files_is_opened_by_the_workers(
    train: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (300, 8, 8), dtype=np.uint8), y=np.arange(300) % 3)
    settings = {"dataset": "npz", "npz": {"path": tmp_path / "own.npz"}, "rounds": 1}
    monkeypatch.setattr("xfed.data.dataset.Dataset.to_bytes", lambda self: pytest.fail("no need to ship the data"))
    far = train("ray", engine="ray", workers=1, **settings)
    assert differences(train("serial", **settings), far) == []


@dataclass
class Desk:
    """What the engine asks of Ray before work starts, on a cluster with eight cores and two GPUs."""

    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 8.0, "GPU": 2.0})
    asked: dict[str, float] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    trouble: Exception | None = None

    def module(self) -> Any:
        ray = MagicMock()
        ray.init.side_effect = self.trouble
        ray.is_initialized.return_value = False
        ray.nodes.return_value = []
        ray.cluster_resources.return_value = self.resources
        ray.remote.return_value.options.side_effect = self._options
        return ray

    def _options(self, **asked: float) -> Any:
        self.asked = asked
        return SimpleNamespace(remote=self._hire)

    def _hire(self, briefing: Any, partition: Any, device: str) -> Any:
        self.devices.append(device)
        return SimpleNamespace(open_data=SimpleNamespace(remote=lambda reopen: None))


def opened(desk: Desk, monkeypatch: pytest.MonkeyPatch, device: str, **settings: Any) -> None:
    monkeypatch.setattr(ray_engine, "import_ray", lambda address: desk.module())
    briefing, data = Briefing({}, {}, {}, Message(), {}, 1), SimpleNamespace(reopen=None)
    job = Job(briefing, data, Partition.of([]), MagicMock(), None, device)  # type: ignore[arg-type]
    engine = ray_engine.RayEngine(ray_engine.RayEngine.Settings(**settings))
    engine.open(job)
    engine._staff()


def test_gpus_are_asked_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    opened(desk, monkeypatch, "cuda", gpus=0.5)
    assert desk.asked == {"num_cpus": 0, "num_gpus": 0.5}
    assert desk.devices == ["cuda"] * 4, "two GPUs, half a one per worker"
    desk = Desk()
    opened(desk, monkeypatch, "cpu")
    assert desk.asked == {"num_cpus": 1, "num_gpus": 0}
    assert desk.devices == ["cpu"] * 8


def test_a_driver_needs_no_gpu_but_its_workers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="device is 'cuda': torch cannot use this device here"):
            tiny(device="cuda")
    assert tiny(engine="ray", device="cuda").place.device == "cuda"
    with pytest.raises(InputError, match="device is 'cuda', but Ray finds no GPU on this machine"):
        opened(Desk({"CPU": 8.0}), monkeypatch, "cuda")


def test_ray_that_does_not_start_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Desk(trouble=Exception("The current node timed out during startup.\nMore of it."))
    with pytest.raises(ClientError, match=r"^Ray did not start on this machine \(The current node timed out .*\.\)$"):
        opened(late, monkeypatch, "cpu")


def test_a_tensor_is_put_into_the_store_once() -> None:
    class Store:
        def __init__(self) -> None:
            self.objects: list[Any] = []

        def put(self, value: Any) -> int:
            self.objects.append(value)
            return len(self.objects)

    store = Store()
    shelf = Shelf(store)
    backbone = torch.arange(3.0)
    assert [shelf.put(backbone) for _ in range(3)] == [1, 1, 1]
    for number in range(ray_engine.SHELF - 1):
        assert shelf.put(torch.full((1,), float(number))) == number + 2
        assert shelf.put(backbone) == 1
    assert len(store.objects) == ray_engine.SHELF


def test_arrays_and_tensors() -> None:
    fixed = np.arange(4.0)
    fixed.setflags(write=False)
    [seen], [copied] = from_arrays([fixed]), from_arrays([fixed], copy=True)
    copied += 1
    assert seen.tolist() == [0, 1, 2, 3]
    assert to_arrays([copied])[0].tolist() == [1, 2, 3, 4]


def test_an_address_where_no_cluster_is(train: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match=r"ray.address is '127.0.0.1:1': no Ray cluster answers"):
        train(engine="ray", ray={"address": "127.0.0.1:1"})


def test_without_the_package(train: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"needs the package ray; install it with: pip install 'xfed\[ray\]'"):
        train(engine="ray")
