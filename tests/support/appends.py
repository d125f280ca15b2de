"""A storage that tells of every write in place, and one whose lock can be made to lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark_commitlog.storage.local.local import LocalStorage

#: (operation, path, position or length)
Write = tuple[str, str, int]


class TellingFile:
    """Hands on to an append file and writes down what it was asked."""

    def __init__(self, inner: Any, path: str, told: list[Write]) -> None:
        self._inner, self._path, self._told = inner, path, told

    def write_at(self, position: int, pieces: Sequence[Any]) -> int:
        """Write."""
        self._told.append(("write_at", self._path, position))
        end: int = self._inner.write_at(position, pieces)
        return end

    def truncate(self, length: int) -> None:
        """Cut or extend."""
        self._told.append(("truncate", self._path, length))
        self._inner.truncate(length)

    def reserve(self, length: int) -> None:
        """Reserve."""
        self._inner.reserve(length)

    def sync(self) -> None:
        """Sync."""
        self._told.append(("sync", self._path, 0))
        self._inner.sync()

    def close(self) -> None:
        """Close."""
        self._inner.close()


class TellingStorage(LocalStorage):
    """A root that writes down all appends; `before_lock` runs when a lock is asked for."""

    told: list[Write]
    before_lock: Callable[[], object] | None = None
    always_locks = False

    def open_append(self, path: str) -> Any:
        """Open a file that tells."""
        if not hasattr(self, "told"):
            self.told = []
        return TellingFile(super().open_append(path), path, self.told)

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Lock, after what shall happen before; or only claim to hold it."""
        if self.before_lock is not None:
            act, self.before_lock = self.before_lock, None
            act()
        if self.always_locks:
            yield True
            return
        with super().try_lock(path) as held:
            yield held
