"""Joint reads of small adjacent extents.

For local disks and processes that read all partitions; elsewhere `storage.shared.read_ahead` fetches ahead.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio
from pyspark_commitlog.storage.shared.caches import Shelf
from pyspark_commitlog.topic.segments.frames import Span

#: Bytes of one joint read of a chunk.
TOGETHER_BYTES = 64 * 2**10
#: Longer extents are mapped alone.
SMALL_BYTES = TOGETHER_BYTES // 4


class _Window(NamedTuple):
    identity: str
    size: int
    start: int
    data: bytes


#: Last window of each file by root and path, process-wide.
_windows: Shelf[tuple[str, str], _Window] = Shelf()


class Neighbours:
    """Cached windows of chunks, checked for the file's identity and size.

    Returned bytes are copies, so that kept rows hold no more.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        """Return bytes [position, end) of a file; see `ReadAhead.window`."""
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
        except OSError as error:  # the bad sector may be a neighbour's
            if not is_eio(error):
                raise
        return self._storage.read(path, position, end - position)


def neighbours_of(storage: Storage, span: Span) -> Neighbours | None:
    """Joint reader of a small extent, or None."""
    small = span.chunk is not None and span.data is None and span.end - span.start <= SMALL_BYTES
    return Neighbours(storage) if small and storage.can_append else None
