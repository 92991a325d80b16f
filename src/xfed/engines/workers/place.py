"""The far side of a Ray worker: a host that gets words as plain values and arrays, and its data by digest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from xfed.data.card import DataCard
from xfed.data.dataset import Dataset
from xfed.data.dealing.partition import Partition
from xfed.engines.workers.allocator import keep_freed_memory, return_freed_memory
from xfed.errors import InputError
from xfed.federation.host import Host, simulated
from xfed.protocol.words import Briefing, EvaluateTask, Failed, TrainTask, frame, unframe

Arrays = list[NDArray[Any]]


def to_arrays(tensors: Iterable[Tensor]) -> Arrays:
    """Look at tensors as arrays, which Ray moves without copying them in between."""
    return [tensor.contiguous().cpu().numpy() for tensor in tensors]


def from_arrays(arrays: Iterable[NDArray[Any]], copy: bool = False) -> list[Tensor]:
    """Look at arrays as tensors; those of the object store are not to be written to, which nothing here does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return [torch.from_numpy(np.array(array) if copy else array) for array in arrays]


class Place:
    """Does client work in a process of its own, on one thread."""

    def __init__(self, briefing: tuple[dict[str, Any], Arrays], partition: Partition, device: str) -> None:
        torch.set_num_threads(1)
        threadpool_limits(1)
        keep_freed_memory()
        plain, arrays = briefing
        [word] = unframe(plain, from_arrays(arrays, copy=True))
        assert isinstance(word, Briefing)
        self._briefing, self._partition, self._device = word, partition, device
        self._sha256 = DataCard.from_json(word.card).sha256
        self._dataset: Dataset | None = None
        self._host: Host | None = None

    def open_data(self, reopen: Callable[[], Dataset] | None) -> str | None:
        """Open the data from files that this machine can see too; name the machine if they hold what is meant."""
        if reopen is None:
            return None
        try:
            found = reopen()
        except InputError:
            return None
        if found.checksum() != self._sha256:
            return None
        self._dataset = found
        return _machine()

    def take_data(self, data: bytes) -> str:
        """Take the data as bytes, which were checked against their digest; name the machine."""
        self._dataset = Dataset.from_bytes(data, self._sha256)
        return _machine()

    def answer(self, plain: dict[str, Any], *arrays: NDArray[Any]) -> tuple[dict[str, Any], Arrays]:
        """Answer words by words."""
        words = unframe(plain, from_arrays(arrays))
        try:
            self._host = self._host or self._settle()
            answers = self._host.answer(words)
        except InputError as error:
            tasks = [word for word in words if isinstance(word, TrainTask | EvaluateTask)]
            answers = [Failed(task.client, str(error), "input") for task in tasks]
        said, tensors = frame(answers)
        return_freed_memory()
        return said, to_arrays(tensors)

    def _settle(self) -> Host:
        assert self._dataset is not None, "data comes before tasks"
        return Host.of(self._briefing, simulated(self._dataset, self._partition, self._device), self._device)


def _machine() -> str:
    """Name the machine of a cluster that this process runs on."""
    import ray

    node: str = ray.get_runtime_context().get_node_id()
    return node
