"""What this process has put lately, so that it need not be asked for again: each byte of it costs a request elsewhere.

A file is remembered by its path and by what only it holds, a write id. So what others put at that path, or what a
restored copy of the root has there, is never taken for it.
"""

from __future__ import annotations

from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.caches import Cache, Shelf
from pyspark_commitlog.storage.process import after_fork

#: Bytes that a process remembers, of all its roots together.
MOST_BYTES = 16 * 2**20

_Key = tuple[str, str, str]


def _new_shelf() -> Shelf[_Key, bytes]:
    return Shelf(Cache(lambda: MOST_BYTES))


_put = _new_shelf()


def remember(storage: Storage, path: str, write_id: str, data: bytes) -> None:
    """Remember a file that was put; nothing where reading costs no more: on a disk whose calls have no limits."""
    if storage.has_limits or not storage.can_append:
        _put.put((storage.url, path, write_id), data, len(data))


def recall(storage: Storage, path: str, write_id: str) -> bytes | None:
    """Return the bytes of a file that this process put; None where it did not, or where they are forgotten."""
    return _put.get((storage.url, path, write_id))


def forget_all() -> None:
    """Begin as a new process does: in a forked child, and in tests."""
    global _put
    _put = _new_shelf()


after_fork(forget_all)
