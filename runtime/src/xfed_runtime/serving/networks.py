"""Clients' networks in memory: a bounded number, shared by all threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from xfed_runtime import Runtime


class Networks:
    """Clients' networks, loaded when first asked for; those not asked for longest make room. For any thread."""

    def __init__(self, load: Callable[[int], Runtime], most: int) -> None:
        self._load, self._most = load, most
        self._loaded: OrderedDict[int, Future[Runtime]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._loaded)

    def get(self, client: int) -> Runtime:
        """Give a client's network; whoever asks while it is being loaded waits for that."""
        with self._lock:
            found = self._loaded.get(client)
            if found is not None:
                self._loaded.move_to_end(client)
            else:
                loading = self._loaded[client] = Future()
                if len(self._loaded) > self._most:
                    self._loaded.popitem(last=False)
        if found is not None:
            return found.result()
        try:
            loading.set_result(self._load(client))
        except BaseException as error:
            loading.set_exception(error)
            with self._lock:
                if self._loaded.get(client) is loading:
                    del self._loaded[client]
        return loading.result()
