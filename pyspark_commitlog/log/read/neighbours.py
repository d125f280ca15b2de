"""Bytes of small extents, read together with those of the partitions after them: a process asks for them next.

For local disks: elsewhere ``storage.read_ahead`` has what comes fetched.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.log.frames import Span
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.caches import Shelf
from pyspark_commitlog.storage.os_errors import is_eio

#: Bytes of a chunk that are read together.
TOGETHER_BYTES = 64 * 2**10
#: Longer extents are mapped, each by itself.
SMALL_BYTES = TOGETHER_BYTES // 4


class _Window(NamedTuple):
    """Bytes of a file from ``start`` on, and the file's identity by ``FileInfo``."""

    identity: str
    size: int
    start: int
    data: bytes


#: By root and path, the window read last of each file; of all readers of the process.
_windows: Shelf[tuple[str, str], _Window] = Shelf()


class Neighbours:
    """Windows of chunks, each read at one go with what follows it, and kept for the readers of other partitions.

    A file that is another by now, or was written to, is read again. What is handed out is a copy of an extent's bytes:
    rows that are kept hold no more than those.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        """Return the bytes of a file from ``position`` to ``end``, or as far as it goes; see ``ReadAhead.window``."""
        key, info = (self._storage.url, path), self._storage.info(path)
        window = _windows.get(key)
        known = window is not None and (window.identity, window.size) == (info.identity, info.size)
        if window is None or not known or not window.start <= position <= end <= window.start + len(window.data):
            window = _Window(info.identity, info.size, position, self._read(path, position, end))
            _windows.put(key, window, len(window.data))
        return pa.py_buffer(window.data[position - window.start : end - window.start])

    def _read(self, path: str, position: int, end: int) -> bytes:
        try:
            return self._storage.read(path, position, max(TOGETHER_BYTES, end - position))
        except OSError as error:  # a bad sector may be a neighbour's
            if not is_eio(error):
                raise
        return self._storage.read(path, position, end - position)


def neighbours_of(storage: Storage, span: Span) -> Neighbours | None:
    """Return what reads an extent of a chunk together with its neighbours; None where it is better read by itself."""
    small = span.chunk is not None and span.data is None and span.end - span.start <= SMALL_BYTES
    return Neighbours(storage) if small and storage.can_append else None
