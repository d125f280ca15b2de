"""A root that is read as one on an object store: nothing is mapped, nothing reports news, and each look is a request."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark_commitlog.storage import FileInfo
from pyspark_commitlog.storage.local.local import LocalStorage


class RemoteStorage(LocalStorage):
    """Counts requests by verb, and says what was fetched of which file, in order.

    Args:
        root: a directory.
        seconds: what each read takes.
    """

    can_append = False  # type: ignore[assignment]

    def __init__(self, root: Path, *, seconds: float = 0.0, **options: Any) -> None:
        super().__init__(root, **options)
        self.requests: Counter[str] = Counter()
        self.fetched: list[tuple[str, int, int]] = []
        self.at_once = self.most_at_once = 0
        self._seconds, self._counting = seconds, Lock()

    def _get(self, path: str, start: int, act: Any) -> Any:
        with self._counting:
            self.requests["GET"] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self._seconds:
                time.sleep(self._seconds)
            found = act()
            data = found[0] if isinstance(found, tuple) else found
            with self._counting:
                self.fetched.append((path, start, start + memoryview(data).nbytes))
            return found
        finally:
            with self._counting:
                self.at_once -= 1

    def map(self, path: str, start: int, length: int) -> Any:
        """A request: GET."""
        return self._get(path, start, lambda: LocalStorage.map(self, path, start, length))

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """A request: GET."""
        found: bytes = self._get(path, start, lambda: LocalStorage.read(self, path, start, length))
        return found

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """A request: GET."""
        found: tuple[bytes, FileInfo] = self._get(path, 0, lambda: LocalStorage.fetch(self, path, length))
        return found

    def info(self, path: str) -> FileInfo:
        """A request: HEAD."""
        with self._counting:
            self.requests["HEAD"] += 1
        return super().info(path)

    def names(self, directory: str) -> list[str]:
        """A request: LIST."""
        with self._counting:
            self.requests["LIST"] += 1
        return super().names(directory)

    def gets(self, suffix: str = "") -> list[tuple[str, int, int]]:
        """Return what was fetched of files whose names end so: (path, start, end)."""
        return [each for each in self.fetched if each[0].endswith(suffix)]

    def reset(self) -> None:
        """Count from here on."""
        with self._counting:
            self.requests.clear()
            self.fetched.clear()
            self.most_at_once = 0
