"""Pooled filesystem instances, and a spooled output file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import IO, Any

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.process import STANDARD

#: Idle instances kept: roughly the number of reading threads.
_KEPT = 16


class Instances:
    """Filesystem instances, each for one thread at a time unless `async_impl`.

    A forked child must neither use nor close its parent's connections.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._of_parents: list[deque[Any]] = []
        self._free = PerProcess(deque[Any], self._of_parents.append)

    @contextmanager
    def borrow(self) -> Iterator[Any]:
        """Lend an instance for the block; drop it after errors but "not found" and "exists"."""
        free = self._free.value
        try:
            instance = free.pop()
        except IndexError:
            instance = self._make()
        shared = bool(getattr(instance, "async_impl", False))
        if shared:
            free.append(instance)
        answered = False  # else it may be within a reply
        try:
            yield instance
            answered = True
        except (FileNotFoundError, FileExistsError):
            answered = True
            raise
        finally:
            if answered and not shared and len(free) < _KEPT:
                free.append(instance)
            elif not answered and shared and instance in free:
                free.remove(instance)


def _spool() -> IO[bytes]:
    standard: list[IO[bytes]] = []
    while (file := NamedTemporaryFile()).fileno() in STANDARD:  # noqa: SIM115 the caller's
        standard.append(file)
    for each in standard:
        each.close()
    return file


class SpooledOutputFile:
    """Output file spooled to local disk and stored whole at `close`.

    Written directly, it could be seen half, or published by a destructor.
    """

    def __init__(self, store: Callable[[IO[bytes]], None]) -> None:
        self._store = store
        self._file = _spool()
        self._length = self._crc = 0

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append pieces."""
        for piece in pieces:
            data = pa.py_buffer(piece)
            self._crc = crc32c(data, self._crc)
            self._length += data.size
            self._file.write(memoryview(data).cast("B"))

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Store the file."""
        with self._file:
            self._file.flush()
            self._file.seek(0)
            self._store(self._file)
        return self._length, self._crc

    def discard(self) -> None:
        """Drop the file; nothing was stored."""
        self._file.close()
