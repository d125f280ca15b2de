"""Storages that tell which bytes of which files were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark_commitlog.storage.local.local import LocalStorage


class MappingStorage(LocalStorage):
    """A root that writes down every `map`: (file name, position)."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.mapped: list[tuple[str, int]] = []

    def map(self, path: str, start: int, length: int) -> Any:
        """Map, and write it down."""
        self.mapped.append((path.rsplit("/", 1)[1], start))
        return super().map(path, start, length)


class CountingStorage(LocalStorage):
    """A root that adds up which bytes of its files were asked for; those that were asked for twice count once."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self._asked: dict[str, list[tuple[int, int]]] = {}

    def bytes(self) -> int:
        """Return how many they are."""
        total = 0
        for ranges in self._asked.values():
            end = 0
            for start, stop in sorted(ranges):
                total += max(stop - max(start, end), 0)
                end = max(end, stop)
        return total

    def map(self, path: str, start: int, length: int) -> Any:
        """Map, and count."""
        found = super().map(path, start, length)
        self._asked.setdefault(path, []).append((start, start + found.size))
        return found

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read, and count."""
        found = super().read(path, start, length)
        self._asked.setdefault(path, []).append((start, start + len(found)))
        return found

    def fetch(self, path: str, length: int) -> Any:
        """Fetch, and count."""
        found = super().fetch(path, length)
        self._asked.setdefault(path, []).append((0, len(found[0])))
        return found
