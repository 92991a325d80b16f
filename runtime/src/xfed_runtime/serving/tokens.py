"""Who may ask for what: bearer tokens from a file, each for everyone's network, for some clients', or for the server.

A line of the file is a token and whom it may ask for, with white space between; `#` begins a comment:

    correct-horse-battery-staple   admin     # everything, reload and rollback included
    another-long-random-text       all       # every client's network
    a-third-long-random-text       0-4,7     # these clients' networks
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path

from xfed_runtime.serving import ServingError

SHORTEST = 16
"""Characters of a token."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True)
class Access:
    """What a caller may do: whose networks it may ask for (None: everyone's), and whether it may change the bundle."""

    clients: tuple[range, ...] | None = None
    admin: bool = False

    def to(self, client: int) -> bool:
        """Tell whether the caller may ask for a client's network."""
        return self.clients is None or any(client in each for each in self.clients)


class Tokens:
    """The tokens of a file, kept as digests; without a file everyone may ask for every network, and change nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = self.read()

    @property
    def required(self) -> bool:
        """Tell whether a caller needs a token."""
        return self._path is not None

    def read(self) -> dict[bytes, Access]:
        """Read the file; what it has holds once it is taken, and a file that cannot be used is refused."""
        return {} if self._path is None else _read(self._path)

    def take(self, known: dict[bytes, Access]) -> None:
        """Let what was read hold from now on."""
        self._known = known

    def access(self, header: str | None) -> Access | None:
        """Give what the bearer of an Authorization header may do, None for nobody; in the same time for any token."""
        if not self.required:
            return Access()
        kind, _, token = (header or "").partition(" ")
        given = _digest(token.strip())
        found = None
        for digest, access in self._known.items():
            if hmac.compare_digest(digest, given):
                found = access
        return found if kind.lower() == "bearer" else None


def _read(path: Path) -> dict[bytes, Access]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ServingError(f"token file {str(path)!r} cannot be read: {error}") from None
    known: dict[bytes, Access] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"line {number} of token file {str(path)!r}"
        if len(words) != 2 or len(words[0]) < SHORTEST or not _TOKEN.fullmatch(words[0]):
            raise ServingError(
                f"{where} is not a token of at least {SHORTEST} letters, digits or ._~+/=- and then admin, all or "
                "clients such as 0-4,7"
            )
        digest = _digest(words[0])
        if digest in known:
            raise ServingError(f"{where} has a token that stands further up already")
        known[digest] = Access(_clients(words[1], where), words[1] == "admin")
    if not known:
        raise ServingError(f"token file {str(path)!r} has no token")
    return known


def _clients(text: str, where: str) -> tuple[range, ...] | None:
    if text in ("admin", "all"):
        return None
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ServingError(f"{where} lets its bearer ask for {text!r}; allowed: admin, all or clients as in 0-4,7")
        first = int(match[1])
        ranges.append(range(first, int(match[2] or first) + 1))
    return tuple(ranges)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
