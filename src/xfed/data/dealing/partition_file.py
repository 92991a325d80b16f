"""Partitions that a user brings along: read and checked before anything is done with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xfed.data.dealing.partition import SPLITS, Partition, Split, open_partition
from xfed.data.dealing.ways import Indices
from xfed.errors import InputError, in_words


def read_partition(path: Path, samples: int) -> Partition:
    """Read a partition of a data set of so many samples: a JSON file, or the `partition.safetensors` of a run.

    JSON is `{"clients": [{"train": [...], "test": [...]}, ...]}`; a `calibration` list may stand beside them. A sample
    may be used once; with `"overlapping": true` by several clients, but once by each, and for testing by all or none.
    """
    partition = open_partition(path) if path.suffix == ".safetensors" else _read_json(path)
    if len(partition) == 0:
        raise InputError(f"partition file {str(path)!r} names no client")
    fault = _fault(partition, samples)
    if fault is not None:
        raise InputError(f"partition file {str(path)!r}: {fault}")
    return partition


def _read_json(path: Path) -> Partition:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _refuse_unknown("the file", content, ("clients", "overlapping"))
        for number, entry in enumerate(content["clients"]):
            _refuse_unknown(f"client {number}", entry, SPLITS)
        splits = [Split(*(_indices(entry.get(part, [])) for part in SPLITS)) for entry in content["clients"]]
        overlapping = content.get("overlapping", False)
        if not isinstance(overlapping, bool):
            raise ValueError("'overlapping' is neither true nor false")
        return Partition.of(splits, overlapping)
    except FileNotFoundError:
        raise InputError(f"partition file {str(path)!r} does not exist") from None
    except OSError as error:
        raise InputError(in_words(error)) from None
    except RecursionError:
        raise InputError(f"partition file {str(path)!r} is nested too deeply") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(
            f"partition file {str(path)!r} is not a JSON object {{'clients': [{{'train': [...], 'test': [...]}}]}} "
            f"of whole numbers: {error}"
        ) from None


def _refuse_unknown(whose: str, values: Any, known: Sequence[str]) -> None:
    """Refuse a name that means nothing here, such as a misspelt one: its samples would be left out silently."""
    for name in values:
        if name not in known:
            raise ValueError(f"{whose} has {name!r}; allowed: {', '.join(known)}")


def _indices(values: Any) -> Indices:
    if not all(type(value) is int for value in values):
        raise ValueError(f"{values!r:.60} holds something else")
    indices = np.asarray(values, dtype=np.int64)
    if np.any(indices != indices.astype(np.int32)):
        raise ValueError(f"{values!r:.60} holds a number of more than 32 bits")
    return indices


def _fault(partition: Partition, samples: int) -> str | None:
    """Name the first thing that breaks a rule."""
    for part in ("train", "test"):
        empty = np.flatnonzero(partition.sizes(part) == 0)
        if len(empty):
            return f"client {empty[0]} has an empty {part} list"
    indices = partition.indices
    wrong = np.flatnonzero((indices < 0) | (indices >= samples))
    if len(wrong):
        return f"client {_owner(partition, wrong[0])} has index {indices[wrong[0]]}; allowed: 0 to {samples - 1}"
    return _overlapping_fault(partition, samples) if partition.overlapping else _repeated(partition)


def _owner(partition: Partition, place: int) -> int:
    return int(np.searchsorted(partition.bounds, place, side="right") - 1) // len(SPLITS)


def _repeated(partition: Partition) -> str | None:
    order = np.argsort(partition.indices, kind="stable")
    twice = np.flatnonzero(np.diff(partition.indices[order]) == 0)
    if len(twice) == 0:
        return None
    first, second = order[twice[0] : twice[0] + 2]
    return (
        f"index {partition.indices[first]} is used twice, by clients {_owner(partition, first)} and "
        f"{_owner(partition, second)}; each sample may be used once, unless the file says that clients are overlapping"
    )


def _overlapping_fault(partition: Partition, samples: int) -> str | None:
    learned, tested = np.zeros(samples, dtype=np.bool_), np.zeros(samples, dtype=np.bool_)
    clients = 0
    for some in partition.blocks():
        indices = some.indices[some.bounds[0] : some.bounds[-1]]
        rows = np.repeat(np.arange(len(SPLITS) * len(some)), np.diff(some.bounds))
        held = np.sort(rows // len(SPLITS) * samples + indices)
        twice = np.flatnonzero(np.diff(held) == 0)
        if len(twice):
            client, index = divmod(int(held[twice[0]]), samples)
            return f"client {clients + client} has index {index} twice"
        for_test = rows % len(SPLITS) == SPLITS.index("test")
        learned[indices[~for_test]] = True
        tested[indices[for_test]] = True
        clients += len(some)
    both = np.flatnonzero(learned & tested)
    return f"index {both[0]} is trained on by one client and tested on by another" if len(both) else None
