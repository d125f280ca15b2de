"""Locks of the system (``flock``): each ends with its holder, and a forked child has none of its parent's."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from pyspark_commitlog.storage.directories import open_directory
from pyspark_commitlog.storage.process import after_fork


class OsLock:
    """A lock on a file, which is made where it lacks; let go of by ``let_go``, and at the latest with this object.

    No directory is made, as lock libraries do: of a disk that is unmounted in that moment it would lie below the mount
    point.

    Args:
        file: the file's absolute name.
        path: what an error names.
    """

    _fd = -1

    def __init__(self, file: Path, path: str) -> None:
        self._file, self._path = file, path
        _locks.add(self)

    def take(self) -> bool:
        """Take the lock; False where it can't be held.

        Another holds it, or its directory is not the one of that name any more: its disk is unmounted, or another is
        mounted there.

        Raises:
            FileNotFoundError: there is no such directory.
            StorageUnreadableError: the directory may not be read.
            OSError: the file can't be written, or the filesystem knows no locks.
        """
        home = open_directory(self._file.parent, f"to lock {self._path}")
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._file.name, flags, 0o666, dir_fd=home)
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
