"""What ScaleFL and DepthFL share: levels by client index, and what they cannot train."""

from __future__ import annotations

from xfed.errors import InputError
from xfed.models.parts import Parts
from xfed.models.subnetwork import Subnetworks
from xfed.protocol.algorithm import Algorithm


def level_of(client: int, population: int, levels: int) -> int:
    """Assign level ⌊i / (n / levels)⌋, from 0: equal shares of the clients, by index."""
    return min(client * levels // population, levels - 1)


def refuse_single_exit(method: Algorithm, subnetworks: Subnetworks) -> None:
    """Refuse a network with one exit."""
    exits = subnetworks.layout.exits
    if not 2 <= exits <= 4:
        raise InputError(f"method {method.name!r} trains early-exit networks of 2 to 4 exits; this one has {exits}")


def refuse_local_statistics(method: Algorithm, subnetworks: Subnetworks) -> None:
    """Refuse levels with BatchNorm statistics that stay on the client: the global model would have none to use."""
    if subnetworks.layout.count(Parts.STATISTICS) and method.statistics == "local":
        raise InputError(
            f"method {method.name!r} with hetero needs bn_statistics aggregate, or a network without BatchNorm: "
            "a client with part of the network has no statistics for the rest"
        )
