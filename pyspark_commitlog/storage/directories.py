"""Durable names in local directories, even after a failed fsync.

A failed fsync is reported once, then its data counts as clean: the next fsync may succeed and write nothing. It proves
nothing unless the directory changed in between (docs/explanation/design/failed-fsync.md).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark_commitlog.errors import RootNotAvailableError, StorageDeniedError, StorageReadOnlyError, SyncFailedError
from pyspark_commitlog.format.paths import ROOT_MARKER
from pyspark_commitlog.storage.base import TEMPORARY
from pyspark_commitlog.storage.descriptors import open_directory, open_file
from pyspark_commitlog.storage.os_errors import FULL, READ_ONLY, make_writable

#: Directories whose last sync failed in this process, with their mtime (ns).
_doubted: dict[str, int] = {}


@contextmanager
def changing(root: str | Path, below: str, path: str) -> Iterator[int]:
    """Open a directory for the block to change names, then sync it.

    Opened first, since another process's error is reported only to descriptors open by then. `path` is for errors;
    `root`, `below`: see `open_directory`.

    Raises:
        StorageDeniedError: denied, or a link; nothing was changed.
        SyncFailedError: the changes may not survive power loss.
    """
    fd = open_directory(root, below, f"to sync it for {path}")
    try:
        yield fd
        sync_open(fd, directory_path(root, below), path)
    finally:
        os.close(fd)


def directory_path(root: str | Path, below: str) -> str:
    """Return a directory's absolute path."""
    return f"{root}/{below}" if below else str(root)


@contextmanager
def directory_of_root(root: Path) -> Iterator[int]:
    """Open a root's directory and check for its marker.

    Names absent below this descriptor are absent from the root; by path, the disk could be mounted in between.

    Raises:
        RootNotAvailableError: there is no marker.
    """
    try:
        home = open_directory(root, "", f"to look for {ROOT_MARKER}")
    except (FileNotFoundError, NotADirectoryError):
        raise RootNotAvailableError.at(str(root)) from None
    try:
        try:
            os.stat(ROOT_MARKER, dir_fd=home)
        except FileNotFoundError:
            raise RootNotAvailableError.at(str(root)) from None
        yield home
    finally:
        os.close(home)


def sync_names(root: str | Path, below: str, path: str, unique: str, *, fresh: bool) -> None:
    """Make the names in a directory durable.

    Args:
        root, below: see `open_directory`.
        path: for errors.
        unique: part of the name made to change the directory.
        fresh: change it first in any case.

    Raises:
        FileNotFoundError: there is no such directory.
        SyncFailedError: they may not survive power loss.
        StorageDeniedError: unreadable, or a link.
        StorageReadOnlyError: a needed change is denied.
    """
    directory = directory_path(root, below)
    try:
        with changing(root, below, path) as fd:
            if fresh or _is_doubted(directory, fd):
                _change(directory, unique, fd)
    except (FileNotFoundError, StorageDeniedError, SyncFailedError):
        raise
    except OSError as error:
        if error.errno in READ_ONLY:
            raise StorageReadOnlyError(
                f"cannot write in the directory {directory}, to make it durable: {error.strerror}; "
                f"{make_writable(error)}"
            ) from error
        raise SyncFailedError(
            f"cannot change the directory {path}, which its sync needs after one that failed, or may have: "
            f"{error.strerror}. Check the disk, then retry with the same writer id"
        ) from error


def _is_doubted(directory: str, fd: int) -> bool:
    failed = _doubted.get(directory)
    return failed is not None and os.fstat(fd).st_mtime_ns == failed


def _change(directory: str, unique: str, fd: int) -> None:
    """Make and remove a name, so that the next sync writes."""
    name = f"{TEMPORARY}{unique}"
    try:
        os.close(open_file(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=fd))
        os.unlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in FULL:
            raise
        os.utime(fd)  # frees a full disk; the journal sees a change, too


def sync_open(fd: int, directory: str, path: str) -> None:
    """Sync an open directory; see `changing`."""
    try:
        _fsync(fd)
    except OSError as error:
        _doubted[directory] = os.fstat(fd).st_mtime_ns  # file times are coarse: an equal time is no change
        raise SyncFailedError(
            f"fsync of the directory of {path} failed ({error.strerror}): what was written there may not "
            f"survive power loss. Check the disk, then retry with the same writer id"
        ) from error
    _doubted.pop(directory, None)


def _fsync(fd: int) -> None:
    """Sync; tolerate EINVAL on read-only images, but not EROFS (failed disks)."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL or not os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise
