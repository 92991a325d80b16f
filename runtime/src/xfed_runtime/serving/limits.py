"""What a server takes on; a request beyond it is refused before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass

from xfed_runtime.inputs import ImageInputs, Inputs
from xfed_runtime.serving.schemas import RequestError

DEEPEST = 8
"""Lists and objects inside one another: a request, its inputs, an image's three dimensions, and some to spare."""
BESIDE_INPUTS = 1000
"""Strings, values or lists that a request may have beside its inputs: keys, a policy with thresholds and flags."""

_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True)
class Limits:
    """What a server takes on."""

    body: int = 10_000_000
    """Bytes of a request."""
    inputs: int = 256
    """Inputs of a request."""
    requests: int = 32
    """Prediction requests computed or waiting for it; more are told to come back. Those still arriving do not count."""
    arriving: int = 100_000_000
    """Bytes of all bodies still arriving, of each body those after its first 64 KiB."""
    connections: int = 500
    """Connections open at once; fewer where the process may have fewer descriptors."""
    headers_seconds: float = 10.0
    """Time until a connection's next request has come, all but its body; TLS has as much for its handshake."""
    body_seconds: float = 30.0
    """Time for a body to arrive."""
    answer_seconds: float = 30.0
    """Time for which nothing of an answer may be taken."""
    networks: int = 8
    """Clients' networks in memory."""


@dataclass(frozen=True)
class Extent:
    """How much of what a request can hold, for a bundle's inputs."""

    strings: int
    values: int
    lists: int

    @classmethod
    def of(cls, inputs: Inputs, most_inputs: int) -> Extent:
        """Count what the most inputs that are allowed need, each in the form that needs most."""
        if isinstance(inputs, ImageInputs):
            values, lists, level = 1, 1, 1
            for size in inputs.shape:
                values *= size
            for size in inputs.shape[:-1]:
                level *= size
                lists += level
        else:
            values, lists = inputs.length, 1
        return cls(*(BESIDE_INPUTS + most_inputs * each for each in (2, values, lists)))

    def check(self, body: bytes) -> None:
        """Refuse a body with more than that, or deeper than needed, without parsing it: a few passes over its bytes."""
        plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
        strings = plain.count(b'"') // 2
        if strings > self.strings:
            raise _too_many("strings", strings, self.strings)
        outside = b"".join(plain.split(b'"')[::2])
        values = outside.count(b",") + 1
        if values > self.values:
            raise _too_many("values", values, self.values)
        nesting = outside.translate(_AS_LISTS, _NO_BRACKETS)
        if len(nesting) > 2 * self.lists:
            raise _too_many("lists and objects", len(nesting) // 2, self.lists)
        for _ in range(DEEPEST):
            nesting = nesting.replace(b"[]", b"")
        if b"[]" in nesting or len(nesting) > DEEPEST:
            raise RequestError(400, f"the body has lists or objects nested more than {DEEPEST} deep, or not closed")


def _too_many(what: str, there: int, allowed: int) -> RequestError:
    return RequestError(413, f"the request has {there:,} {what}; allowed: up to {allowed:,}")
