"""Files fetched from their published addresses, and trusted only with the published md5."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xfed.data.raw.progress import progress
from xfed.errors import InputError
from xfed.files import whole

TIMEOUT_SECONDS = 30
BLOCK_BYTES = 1 << 18


class UnreachableError(Exception):
    """The address does not answer; most likely there is no internet here."""


@dataclass(frozen=True)
class Download:
    """One published file: where it is, what it is called, and its md5."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[1]

    def fetch(self, target: Path) -> None:
        """Write the file to `target`, whole and checked, or leave nothing there."""
        found = hashlib.md5(usedforsecurity=False)
        with (
            self._reached(lambda: urllib.request.urlopen(self.url, timeout=TIMEOUT_SECONDS)) as answer,
            whole(target) as temporary,
            temporary.open("wb") as stream,
            progress(self.name, _length(answer), size_in_bytes=True) as advance,
        ):
            while block := self._reached(lambda: answer.read(BLOCK_BYTES)):
                found.update(block)
                stream.write(block)
                advance(len(block))
            if found.hexdigest() != self.md5:
                raise InputError(
                    f"{self.url} gave a file with md5 {found.hexdigest()}, not the published {self.md5}; "
                    "try again, or fetch it by other means"
                )

    def _reached(self, call: Callable[[], Any]) -> Any:
        """Call something that needs the network, and tell its errors from those of the disk."""
        try:
            return call()
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{self.url}: {getattr(error, 'reason', None) or error}") from None


def _length(answer: Any) -> int | None:
    length = answer.headers.get("Content-Length")
    return int(length) if length else None


def md5(content: bytes) -> str:
    """Give the md5 of a file's content, as data sets publish it."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
