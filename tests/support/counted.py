"""A root that answers as S3 does, and counts requests: nothing is appended, a put's reply lacks the time of its file."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_commitlog.storage import FileInfo
from pyspark_commitlog.storage.local.local import LocalOutputFile, LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class CountedStorage(LocalStorage):
    """A root whose requests are counted by verb; `exact`: as GCS, identities need no time.

    `server` is storage's clock, whose times are cut to seconds; `clock` the process's.
    """

    can_append = False  # type: ignore[assignment]
    bills_requests = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: ManualClock,
        server: ManualClock | None = None,
        exact: bool = False,
    ) -> None:
        super().__init__(root, clock=clock)
        self.server, self.exact = server or clock, exact
        self.requests: Counter[str] = Counter()

    def spent(self) -> dict[str, int]:
        """Return the requests since the last call, by verb."""
        spent = dict(self.requests)
        self.requests.clear()
        return spent

    def _stamp(self, name: str, home: int) -> None:
        now = self.server.now_ms() // 1000 * 1_000_000_000
        os.utime(name, ns=(now, now), dir_fd=home, follow_symlinks=False)

    def _known(self, path: str) -> FileInfo:
        name = Path(self._name(path))
        stat, data = name.stat(), name.read_bytes()
        modified_ms = stat.st_mtime_ns // 1_000_000
        identity = f"{_etag(data)}{stat.st_ino}" if self.exact else f"{_etag(data)}@{modified_ms}"
        return FileInfo(stat.st_size, modified_ms, identity)

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Put, and return what S3 says: the ETag, or GCS: the generation."""
        self.requests["PUT"] += 1
        super().put_if_absent(path, data)
        identity = self._known(path).identity if self.exact else f"{_etag(data)}@"
        return FileInfo(len(data), -1, identity)

    def create(self, path: str) -> LocalOutputFile:
        """Count one put."""
        self.requests["PUT"] += 1
        return super().create(path)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read."""
        self.requests["GET"] += 1
        return super().read(path, start, length)

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """Read the first bytes."""
        self.requests["GET"] += 1
        return super().fetch(path, length)[0], self._known(path)

    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        """Read a range."""
        self.requests["GET"] += 1
        return super().map(path, start, length)

    def info(self, path: str) -> FileInfo:
        """Look."""
        self.requests["HEAD"] += 1
        super().info(path)
        return self._known(path)

    def names(self, directory: str) -> list[str]:
        """List."""
        self.requests["LIST"] += 1
        return super().names(directory)

    def delete(self, path: str) -> None:
        """Delete."""
        self.requests["DELETE"] += 1
        super().delete(path)

    def open_append(self, path: str) -> Any:
        """Refuse: nothing may be appended to."""
        raise AssertionError(f"{path} is appended to")
