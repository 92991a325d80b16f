"""A private copy of a bundle: what was checked is what is served, whatever happens to the original."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from xfed_runtime import Bundle, BundleError
from xfed_runtime.manifest import MANIFEST
from xfed_runtime.serving import ServingError


class Snapshot:
    """A private, checked copy of a bundle: replacing the original in place, for a reload, changes nothing here.

    `unchanged` tells whether its files are still those that were checked. The copy goes with this object.
    """

    def __init__(self, path: Path, digest: str | None = None) -> None:
        names = (MANIFEST, *Bundle.open(path, digest).manifest.files)
        try:
            root = Path(tempfile.mkdtemp(prefix="xfed-serve-"))
            self._end = weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
            for name in names:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path / name, root / name)
            self.bundle = Bundle.open(root, digest)
            self._files = [root / name for name in names]
            self._state = self._look()
            self.id = self.bundle.digest[:16]
        except OSError as error:
            raise ServingError(
                f"bundle {str(path)!r} cannot be copied to where temporary files go (TMPDIR): {error}"
            ) from None
        except BundleError as error:
            raise BundleError(f"bundle {str(path)!r} changed while it was copied: {error}") from None

    def unchanged(self) -> bool:
        """Tell whether nobody has touched a file since it was checked: writing or replacing one leaves a mark."""
        try:
            return self._look() == self._state
        except OSError:
            return False

    def _look(self) -> list[tuple[int, ...]]:
        marks = (os.stat(file) for file in self._files)
        return [(mark.st_dev, mark.st_ino, mark.st_size, mark.st_mtime_ns, mark.st_ctime_ns) for mark in marks]

    def close(self) -> None:
        """Remove the copy now."""
        self._end()
