"""Named tensors per client on disk, versioned by round; only clients that were touched exist."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from xfed.errors import InputError
from xfed.files import read_tensors, write_tensors

CACHE_BYTES = 64 * 2**20


class ClientStore:
    """The newest version of each client's tensors, with a bounded cache in memory.

    Files are written whole and never changed: a version is (client, round). Which versions count is the
    index, which a checkpoint saves; versions that no kept checkpoint names are deleted by `collect`.
    """

    def __init__(self, root: Path, versions: Mapping[int, int] | None = None) -> None:
        self.root = root
        self.versions = dict(versions or {})
        self.round = 0
        self._changed = set(self.versions)
        self._cache: OrderedDict[tuple[int, int], dict[str, Tensor]] = OrderedDict()
        self._cached_bytes = 0

    def path(self, client: int, version: int) -> Path:
        """Name the file of one version."""
        return self.root / f"{client:06d}" / f"{version:06d}.safetensors"

    def get(self, client: int) -> dict[str, Tensor]:
        """Give a client's tensors; nothing for one never touched."""
        version = self.versions.get(client)
        if version is None:
            return {}
        key = (client, version)
        if key in self._cache:
            self._cache.move_to_end(key)
        else:
            self._remember(key, self.read(client, version))
        return dict(self._cache[key])

    def read(self, client: int, version: int | None) -> dict[str, Tensor]:
        """Read one version from disk."""
        if version is None:
            return {}
        path = self.path(client, version)
        try:
            return read_tensors(path)
        except Exception as error:
            raise InputError(f"state file {str(path)!r} cannot be read: {error}") from None

    def write(self, client: int, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Write one version to disk, without counting it yet."""
        write_tensors(self.path(client, version), tensors)

    def put(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Make these tensors the client's newest, as of the current round."""
        self.write(client, self.round, tensors)
        self._forget((client, self.round))
        self._remember((client, self.round), dict(tensors))
        self.count(client)

    def count(self, client: int) -> None:
        """Make the version that was written for the current round the client's newest."""
        self.versions[client] = self.round
        self._changed.add(client)

    def known(self) -> list[int]:
        """Give the clients for which there is something, in order."""
        return sorted(self.versions)

    def collect(self, kept: Iterable[Mapping[int, int]]) -> None:
        """Delete the versions that neither a kept index nor the current one names."""
        indexes = [*kept, self.versions]
        for client in sorted(self._changed):
            needed = {index[client] for index in indexes if client in index}
            for path in self.path(client, 0).parent.glob("*.safetensors"):
                if int(path.stem) not in needed:
                    path.unlink()
            if len(needed) == 1:
                self._changed.discard(client)

    def _remember(self, key: tuple[int, int], tensors: dict[str, Tensor]) -> None:
        self._cache[key] = tensors
        self._cached_bytes += sum(t.nbytes for t in tensors.values())
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            self._forget(next(iter(self._cache)))

    def _forget(self, key: tuple[int, int]) -> None:
        tensors = self._cache.pop(key, {})
        self._cached_bytes -= sum(t.nbytes for t in tensors.values())
