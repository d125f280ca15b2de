"""Chunks and side files that this process has made durable: what counts them syncs them once, not at each step.

Only on local disks: elsewhere a sync is nothing, or a look is a request.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pyspark_commitlog.storage import FileInfo, Storage
from pyspark_commitlog.storage.process import after_fork

#: Files that are remembered, the newest ones: a commit's, until its entry is learned. To forget one costs a sync.
_MOST = 4096


def add(root: Storage, path: str) -> None:
    """Remember a file whose bytes and name were synced by this process, as the very file that is there now."""
    if not root.can_append:
        return
    identity = root.info(path).identity
    with _lock:
        _known[root.url, path] = identity
        while len(_known) > _MOST:
            _known.popitem(last=False)


def has(root: Storage, path: str, found: FileInfo) -> bool:
    """Return whether this process has synced a file that it sees: another one of that name is one of a copy."""
    with _lock:
        return _known.get((root.url, path)) == found.identity


_known: OrderedDict[tuple[str, str], str] = OrderedDict()
_lock = Lock()


def _begin_again() -> None:
    """In a forked child nobody lets go of a lock that another thread held."""
    global _lock
    _lock = Lock()


after_fork(_begin_again)
