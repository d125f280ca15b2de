"""Chunks and side files that this process has synced, once each.

Local disks only: elsewhere a sync is free, or a look is a request.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pyspark_commitlog.storage import FileInfo, Storage
from pyspark_commitlog.storage.per_process import PerProcess

#: Files remembered, the newest ones: a commit's until its entry is learned. A forgotten one costs a sync.
_MOST = 4096


def add(root: Storage, path: str) -> None:
    """Remember a synced file by its identity."""
    if not root.can_append:
        return
    identity = root.info(path).identity
    with _lock.value:
        _known[root.url, path] = identity
        while len(_known) > _MOST:
            _known.popitem(last=False)


def has(root: Storage, path: str, found: FileInfo) -> bool:
    """Whether this process has synced this very file."""
    with _lock.value:
        return _known.get((root.url, path)) == found.identity


_known: OrderedDict[tuple[str, str], str] = OrderedDict()
_lock = PerProcess(Lock)
