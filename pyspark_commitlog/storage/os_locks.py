"""Locks of the system (``flock``): each ends with its holder, and a forked child has none of its parent's."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from pyspark_commitlog.storage.process import after_fork

#: Descriptors that hold a lock, or wait for one.
_open: set[int] = set()


def keep(fd: int) -> None:
    """Have a descriptor closed in forked children."""
    _open.add(fd)


def close(fd: int) -> None:
    """Close a descriptor; another process may have a copy that holds its lock."""
    _open.discard(fd)
    os.close(fd)


def let_go(fd: int) -> None:
    """Give a lock up, also where a child that was forked just now has a copy; nothing in a child that has none."""
    if fd in _open:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        close(fd)


def try_lock(file: Path) -> int | None:
    """Lock a file, which is made where it lacks, and return its descriptor; None where it can't be held.

    Another holds it, or its directory is not the one of that name any more: its disk is unmounted, or another is
    mounted there. No directory is made, as lock libraries do: it would lie below the mount point.

    Raises:
        FileNotFoundError: there is no such directory.
        OSError: the file can't be written, or the filesystem knows no locks.
    """
    home = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(file.name, flags, 0o666, dir_fd=home)
        try:
            keep(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(home), os.stat(file.parent)):
                return fd
        except BlockingIOError:
            pass
        except BaseException:
            close(fd)
            raise
        close(fd)
        return None
    finally:
        os.close(home)


def _close_inherited() -> None:
    """Close a forked child's copies: the parent's lock must end with the parent."""
    while _open:
        with suppress(OSError):
            os.close(_open.pop())


after_fork(_close_inherited)
