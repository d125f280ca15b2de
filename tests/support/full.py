"""A disk with room for so many bytes; settled segments do not count."""

from __future__ import annotations

import errno
import os
from typing import Any

from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.os_errors import explain
from tests.support.world import World


class SmallDisk(LocalStorage):
    """A root on a disk with `free` bytes left; what did not become a file gives its bytes back."""

    def __init__(self, world: World, free: int) -> None:
        super().__init__(world.path, clock=world.clock)
        self.free = free
        self.refused = 0

    def take(self, path: str, size: int) -> None:
        """Take room for a file, or say that there is none."""
        if size > self.free:
            self.refused += 1
            raise explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), self._root, f"write {path}")
        self.free -= size

    def put_if_absent(self, path: str, data: bytes) -> None:
        """As on any disk."""
        self.take(path, len(data))
        super().put_if_absent(path, data)

    def create(self, path: str) -> Any:
        """As on any disk."""
        return _Output(self, path, super().create(path))


class _Output:
    def __init__(self, disk: SmallDisk, path: str, inner: Any) -> None:
        self._disk, self._path, self._inner, self._taken = disk, path, inner, 0

    def write(self, *pieces: Any) -> None:
        size = sum(memoryview(piece).nbytes for piece in pieces)
        self._disk.take(self._path, size)
        self._taken += size
        self._inner.write(*pieces)

    def close(self, *, durable: bool = True) -> Any:
        self._taken = 0
        return self._inner.close(durable=durable)

    def discard(self) -> None:
        self._disk.free += self._taken
        self._taken = 0
        self._inner.discard()
