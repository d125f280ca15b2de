"""A directory as the contract of storages looks at it, past the code under test."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.testing.contract_base import StorageCase


class RawDirectory(StorageCase):
    """Raw access by the system's calls."""

    def raw_root(self, storage: Storage) -> Path:
        """Return the directory that the storage's files lie in."""
        return Path(storage.url)

    def raw_write(self, storage: Storage, path: str, data: bytes) -> None:
        full = self.raw_root(storage) / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(data)

    def raw_read(self, storage: Storage, path: str) -> bytes | None:
        try:
            return (self.raw_root(storage) / path).read_bytes()
        except FileNotFoundError:
            return None

    def raw_names(self, storage: Storage, directory: str) -> list[str]:
        full = self.raw_root(storage) / directory
        return sorted(os.listdir(full)) if full.is_dir() else []

    def raw_temporary(self, storage: Storage, directory: str, modified_ms: int) -> None:
        path = self.raw_root(storage) / directory / f".tmp-{uuid.uuid4()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)
