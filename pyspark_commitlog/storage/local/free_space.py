"""What is free on a root's disk."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark_commitlog.storage.base import Storage
from pyspark_commitlog.storage.local.local import LocalStorage


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Bytes of a file system: what this user may still write, and all."""

    free_bytes: int
    total_bytes: int


def free_space(storage: Storage) -> FreeSpace | None:
    """Return what is free where a root is; None for other than a mounted file system, or if it does not say."""
    if not isinstance(storage, LocalStorage):
        return None
    try:
        found = os.statvfs(storage.url)
    except OSError:
        return None
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize) if found.f_blocks else None
