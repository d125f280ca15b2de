"""Locks of the system (``flock``): each ends with its holder, and a forked child has none of its parent's."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from pyspark_commitlog.storage.descriptors import PASSING, open_directory, open_inside
from pyspark_commitlog.storage.process import after_fork


class OsLock:
    """A lock on a file, which is made where it lacks; let go of by ``let_go``, and at the latest with this object.

    No directory is made, as lock libraries do: of a disk that is unmounted in that moment it would lie below the mount
    point.

    Args:
        root: the root's absolute name.
        path: the file's name below it.
    """

    _fd = -1

    def __init__(self, root: Path, path: str) -> None:
        self._root, self._path, self._file = root, path, root / path
        _locks.add(self)

    def take(self) -> bool:
        """Take the lock; False where it can't be held.

        Another holds it, or its directory is not the one of that name any more: its disk is unmounted, or another is
        mounted there.

        Raises:
            FileNotFoundError: there is no such directory.
            StorageDeniedError: the directory may not be used, or one of both is a link.
            OSError: the file can't be written, or the filesystem knows no locks.
        """
        home = open_directory(self._root, self._path.rpartition("/")[0], f"to lock {self._path}", PASSING)
        try:
            self._fd = open_inside(home, self._file.name, str(self._file), os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(home), os.stat(self._file.parent))
        except BlockingIOError:
            return False
        finally:
            os.close(home)

    def let_go(self) -> None:
        """Give the lock up, also where a child that was forked just now has a copy; twice is once."""
        if self._fd >= 0:
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    __del__ = let_go


#: Those of this process.
_locks: WeakSet[OsLock] = WeakSet()


def _close_inherited() -> None:
    """Close a forked child's copies: the parent's lock must end with the parent."""
    for lock in list(_locks):
        lock._close()


after_fork(_close_inherited)
