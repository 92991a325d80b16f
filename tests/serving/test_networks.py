"""Networks in memory."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from xfed_runtime import Bundle
from xfed_runtime.serving.networks import Networks


def test_networks_make_room_for_one_another() -> None:
    loads: list[int] = []
    networks = Networks(lambda client: loads.append(client) or f"network {client}", 2)  # type: ignore[arg-type, func-returns-value, return-value]
    assert [networks.get(client) for client in (1, 2, 1, 3, 1, 2)] == [f"network {c}" for c in (1, 2, 1, 3, 1, 2)]
    assert loads == [1, 2, 3, 2], "2 was not asked for longest when 3 came"
    assert len(networks) == 2


def test_a_network_is_loaded_once_for_all_who_wait(bundle: Bundle) -> None:
    loads, everyone = [], threading.Barrier(4)

    def load(client: int) -> Any:
        loads.append(client)
        return bundle.runtime(client)

    networks = Networks(load, 2)

    def get(_: int) -> Any:
        everyone.wait(30)
        return networks.get(3)

    with ThreadPoolExecutor(4) as pool:
        assert len({id(runtime) for runtime in pool.map(get, range(4))}) == 1
    assert loads == [3]
