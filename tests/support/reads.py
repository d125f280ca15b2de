"""A storage that tells which bytes of which files were mapped, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark_commitlog.storage import LocalStorage


class MappingStorage(LocalStorage):
    """A root that writes down every ``map``: (file name, position)."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.mapped: list[tuple[str, int]] = []

    def map(self, path: str, start: int, length: int) -> Any:
        """Map, and write it down."""
        self.mapped.append((path.rsplit("/", 1)[1], start))
        return super().map(path, start, length)
