"""Cache of this process's recent puts, to save requests.

The key includes the write id, so no other file at the path matches, not even in a restored copy.
"""

from __future__ import annotations

from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.shared.caches import Cache, Shelf

#: Capacity in bytes, for all roots of the process.
MOST_BYTES = 16 * 2**20

_Key = tuple[str, str, str]


own_puts = PerProcess[Shelf[_Key, bytes]](lambda: Shelf(Cache(lambda: MOST_BYTES)))


def remember(storage: Storage, path: str, write_id: str, data: bytes) -> None:
    """Remember a put, unless reading back is cheap (local disk without deadlines)."""
    if storage.has_deadlines or not storage.can_append:
        own_puts.value.put((storage.url, path, write_id), data, len(data))


def recall(storage: Storage, path: str, write_id: str) -> bytes | None:
    """Bytes of a put of this process; None if unknown."""
    return own_puts.value.get((storage.url, path, write_id))
