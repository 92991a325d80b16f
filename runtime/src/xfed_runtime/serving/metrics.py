"""Counters of a server in Prometheus' text format: which exits answer, how long requests take, how they end."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

from xfed_runtime.serving.service import Service

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, in seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, str, float]
"""Suffix of the name, labels, value."""


class Metrics:
    """What happened so far. Only the event loop's thread writes and reads, so nothing is locked."""

    def __init__(self) -> None:
        self.exits: Counter[int] = Counter()
        self.macs = 0
        self.in_progress = 0
        self.changes: Counter[tuple[str, str]] = Counter()
        """Reloads and rollbacks, by how they ended."""
        self._requests: Counter[tuple[str, int]] = Counter()
        self._latencies = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def request_ended(self, path: str, status: int) -> None:
        """Count a request; the path is one of the server's own, so that strangers cannot make up labels."""
        self._requests[path, status] += 1

    def answered(self, exits: Iterable[int], macs: int, seconds: float) -> None:
        """Count the answers of one prediction request: the exits (from 0) they left at, their MACs, the time."""
        for exit_index in exits:
            self.exits[exit_index] += 1
        self.macs += macs
        self._latencies[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def text(self, service: Service, batches: int) -> str:
        """Give everything, with the batches computed and what the service that answers now holds."""
        for number in range(len(service.bundle.macs)):
            self.exits[number] += 0
        by_status = [("", f'path="{path}",status="{status}"', n) for (path, status), n in self._requests.items()]
        by_exit = [("", f'exit="{number + 1}"', n) for number, n in sorted(self.exits.items())]
        changes = [("", f'kind="{kind}",outcome="{outcome}"', n) for (kind, outcome), n in self.changes.items()]
        bundle = [("", f'id="{service.id}"', 1)]
        return (
            _family("xfed_requests_total", "counter", "requests that ended, by path and status", by_status)
            + _family("xfed_answers_total", "counter", "inputs answered, by the exit they left at", by_exit)
            + _family("xfed_macs_total", "counter", "MACs that the answers cost", [("", "", self.macs)])
            + _family("xfed_predict_seconds", "histogram", "time of a prediction request", self._histogram())
            + _family("xfed_requests_in_progress", "gauge", "prediction requests", [("", "", self.in_progress)])
            + _family("xfed_batches_total", "counter", "batches that answers were computed in", [("", "", batches)])
            + _family("xfed_networks_loaded", "gauge", "clients' networks in memory", [("", "", len(service.networks))])
            + _family("xfed_bundle_changes_total", "counter", "reloads and rollbacks, by outcome", changes)
            + _family("xfed_bundle_info", "gauge", "the bundle that answers", bundle)
        )

    def _histogram(self) -> Iterator[Sample]:
        total = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._latencies, strict=True):
            total += count
            yield "_bucket", f'le="{bound}"', total
        yield "_sum", "", self._seconds
        yield "_count", "", total


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{suffix}{{{labels}}} {value}" if labels else f"{name}{suffix} {value}"
        for suffix, labels, value in samples
    ]
    return "\n".join(lines) + "\n"
