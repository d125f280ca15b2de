"""OS locks (`flock`): they end with their holder; forks inherit none."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from pyspark_commitlog.storage.local.descriptors import PASSING, open_directory, open_inside
from pyspark_commitlog.storage.per_process import PerProcess


class OsLock:
    """A lock on a file, made if absent; it ends with this object.

    No directory is made, as by lock libraries: on an unmounted disk it would land below the mount point.
    """

    _fd = -1

    def __init__(self, root: Path, path: str) -> None:
        self._root, self._path, self._file = root, path, root / path
        _locks.value.add(self)

    def take(self) -> bool:
        """Take the lock; return success.

        False if it is held, or its directory has been replaced (other disk).

        Raises:
            FileNotFoundError: there is no such directory.
            StorageDeniedError: directory or file is denied, or a link.
            OSError: the file can't be written or locked.
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
        """Release the lock, even from a forked child's copy; idempotent."""
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


def _close_inherited(locks: WeakSet[OsLock]) -> None:
    for lock in list(locks):  # a lock ends with the parent
        lock._close()


_locks = PerProcess(WeakSet[OsLock], _close_inherited)
