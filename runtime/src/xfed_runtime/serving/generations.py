"""The bundle that answers and the one before it: a new one takes over once it is checked and loaded, not sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from xfed_runtime import BundleError
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.service import Service


class Generations:
    """The service that answers now; requests under way keep the one that they began with. For any thread."""

    def __init__(self, load: Callable[[], Service]) -> None:
        self._load = load
        self._changing = Lock()
        self.current = load()
        self.previous: Service | None = None

    def reload(self) -> bool:
        """Load the bundle again and let it answer; tell whether it is another one.

        One that cannot be used is refused with a sentence, and nothing changes. A current one whose own copy someone
        damaged gives way also to the same bundle, and is not kept to go back to.
        """
        with self._turn():
            try:
                loaded = self._load()
            except (BundleError, ServingError) as error:
                raise ServingError(f"{error}; bundle {self.current.id} goes on answering") from None
            old, intact = self.current, self.current.intact()
            if intact and loaded.id == old.id:
                loaded.close()
                return False
            self.current = loaded
            unneeded = self.previous if intact else old
            if intact:
                self.previous = old
            if unneeded is not None:
                unneeded.close()
            return loaded.id != old.id

    def rollback(self) -> bool:
        """Let the bundle before this one answer again; once more, and the newer one does.

        One whose own copy someone damaged is refused with a sentence, and nothing changes.
        """
        with self._turn():
            if self.previous is None:
                raise ServingError("there is no bundle to go back to: none was loaded before this one")
            if not self.previous.intact():
                raise ServingError(
                    f"someone changed the server's own copy of bundle {self.previous.id}, which answered before; "
                    f"bundle {self.current.id} goes on answering"
                )
            self.current, self.previous = self.previous, self.current
            return True

    def close(self) -> None:
        """Remove what the services keep on disk."""
        for service in (self.current, self.previous):
            if service is not None:
                service.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Change one thing at a time; a second change is refused, not queued."""
        if not self._changing.acquire(blocking=False):
            raise ServingError("the bundle is being changed already")
        try:
            yield
        finally:
            self._changing.release()
