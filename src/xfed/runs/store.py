"""Named tensors per client on disk, versioned by round; only clients that were touched exist."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from xfed.errors import InputError
from xfed.files import content_digest, read_metadata, read_tensors, write_tensors

CACHE_BYTES = 64 * 2**20
TENSOR_OVERHEAD = 512
"""What a tensor in the cache costs besides its numbers: counts where there are very many small ones."""
CLIENTS_PER_FOLDER = 1000
NAME = re.compile(r"(\d{6,})-(\d{6,})\.safetensors")
"""Client and version; a folder on somebody's disk may hold other files too."""


class Replaced(NamedTuple):
    """A version that a newer one took the place of: a checkpoint from `version` until before `by` needs it."""

    client: int
    version: int
    by: int


class ClientStore:
    """The newest version of each client's tensors, with a bounded cache in memory.

    Files are written whole and never changed: a version is (client, round). Which versions count is the index, which
    a checkpoint saves; a version that no kept checkpoint needs is deleted by `collect`. What a round costs depends on
    the clients it touches, not on how many were touched before.
    """

    def __init__(self, root: Path, versions: Mapping[int, int] | None = None) -> None:
        self.root = root
        self.versions = dict(versions or {})
        self.round = 0
        self._replaced: list[Replaced] | None = None
        self._cache: OrderedDict[tuple[int, int], dict[str, Tensor]] = OrderedDict()
        self._cached_bytes = 0

    def path(self, client: int, version: int) -> Path:
        """Name the file of one version."""
        folder = self.root / f"{client // CLIENTS_PER_FOLDER:03d}"
        return folder / f"{client:06d}-{version:06d}.safetensors"

    def get(self, client: int) -> dict[str, Tensor]:
        """Give a client's tensors; nothing for one never touched."""
        version = self.versions.get(client)
        if version is None:
            return {}
        key = (client, version)
        if key in self._cache:
            self._cache.move_to_end(key)
        else:
            # Copies: what was read is the mapped file, and a process can map a limited number of them.
            self._remember(key, {name: tensor.clone() for name, tensor in self.read(client, version).items()})
        return dict(self._cache[key])

    def read(self, client: int, version: int | None) -> dict[str, Tensor]:
        """Read one version from disk."""
        if version is None:
            return {}
        path = self.path(client, version)
        try:
            tensors, noted = read_tensors(path), read_metadata(path)
        except FileNotFoundError:
            raise InputError(f"state file {str(path)!r} is missing") from None
        except Exception as error:
            raise InputError(f"state file {str(path)!r} is damaged: {error}") from None
        if noted != _note(client, version, tensors):
            raise InputError(f"state file {str(path)!r} is damaged or another's: its content is not what was written")
        return tensors

    def write(self, client: int, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Write one version to disk, without counting it yet."""
        write_tensors(self.path(client, version), tensors, _note(client, version, tensors))

    def put(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Make these tensors the client's newest, as of the current round."""
        self.write(client, self.round, tensors)
        self._forget((client, self.round))
        self._remember((client, self.round), {name: _alone(tensor) for name, tensor in tensors.items()})
        self.count(client)

    def count(self, client: int) -> None:
        """Make the version that was written for the current round the client's newest."""
        before = self.versions.get(client, self.round)
        if before != self.round and self._replaced is not None:
            self._replaced.append(Replaced(client, before, self.round))
        self.versions[client] = self.round

    def discard(self, client: int) -> None:
        """Delete the version that was written for the current round: what came with it was not taken."""
        self.path(client, self.round).unlink(missing_ok=True)

    def known(self) -> list[int]:
        """Give the clients for which there is something, in order."""
        return sorted(self.versions)

    def collect(self, kept: Sequence[int]) -> None:
        """Delete the versions that no checkpoint of the kept rounds needs: it needs the newest up to its round.

        The first time, what lies on disk is listed: an interrupted run may have left anything there.
        """
        if self._replaced is None:
            self._replaced = list(self._on_disk())
        rounds = {*kept, self.round}
        needed = []
        for replaced in self._replaced:
            if any(replaced.version <= round < replaced.by for round in rounds):
                needed.append(replaced)
            else:
                self.path(replaced.client, replaced.version).unlink(missing_ok=True)
        self._replaced = needed

    def drop_after(self, round: int) -> None:
        """Delete versions of later rounds: a run that goes on from this one must not take them for its own."""
        for client, version in self._files():
            if version > round:
                self.path(client, version).unlink()

    def here(self, client: int) -> bool:
        """Tell whether a client's newest version lies here, and not on a device."""
        return client in self.versions and self.path(client, self.versions[client]).is_file()

    def nbytes(self, client: int) -> int:
        """Give the size of a client's tensors, from the length of the file and of its header."""
        version = self.versions.get(client)
        if version is None:
            return 0
        path = self.path(client, version)
        try:
            with path.open("rb") as stream:
                header = int.from_bytes(stream.read(8), "little")
                return os.fstat(stream.fileno()).st_size - 8 - header
        except OSError as error:
            raise InputError(f"state file {str(path)!r} cannot be read: {error.strerror}") from None

    def _on_disk(self) -> Iterator[Replaced]:
        """Find all versions that have a newer one beside them."""
        for (client, version), (other, newer) in pairwise(sorted(self._files())):
            if client == other:
                yield Replaced(client, version, newer)

    def _files(self) -> Iterator[tuple[int, int]]:
        """Find client and version of every file that lies here."""
        for path in self.root.glob("*/*.safetensors"):
            if match := NAME.fullmatch(path.name):
                yield int(match[1]), int(match[2])

    def _remember(self, key: tuple[int, int], tensors: dict[str, Tensor]) -> None:
        self._cache[key] = tensors
        self._cached_bytes += _cost(tensors)
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            self._forget(next(iter(self._cache)))

    def _forget(self, key: tuple[int, int]) -> None:
        self._cached_bytes -= _cost(self._cache.pop(key, {}))


def _note(client: int, version: int, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Note whose state a file is, of which round, and what it holds: a file tells by itself that it is another's."""
    return {"client": str(client), "version": str(version), "sha256": content_digest(tensors)}


def _alone(tensor: Tensor) -> Tensor:
    """Copy a piece of something larger, such as a row of a cohort's stack: the cache would keep all of it."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _cost(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes + TENSOR_OVERHEAD for tensor in tensors.values())
