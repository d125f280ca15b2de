"""Cache of this process's recent puts, to save requests.

The key includes the write id, so no other file at the path matches, not even in a restored copy.
"""

from __future__ import annotations

from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.process import after_fork
from pyspark_commitlog.storage.shared.caches import Cache, Shelf

#: Capacity in bytes, for all roots of the process.
MOST_BYTES = 16 * 2**20

_Key = tuple[str, str, str]


def _new_shelf() -> Shelf[_Key, bytes]:
    return Shelf(Cache(lambda: MOST_BYTES))


_put = _new_shelf()


def remember(storage: Storage, path: str, write_id: str, data: bytes) -> None:
    """Remember a put, unless reading back is cheap (local disk without deadlines)."""
    if storage.has_limits or not storage.can_append:
        _put.put((storage.url, path, write_id), data, len(data))


def recall(storage: Storage, path: str, write_id: str) -> bytes | None:
    """Return the bytes of a put of this process; None if unknown."""
    return _put.get((storage.url, path, write_id))


def forget_all() -> None:
    """Drop all, in a forked child or a test."""
    global _put
    _put = _new_shelf()


after_fork(forget_all)
