"""What makes the names in a local directory durable, also where a sync failed before.

A failed fsync is an error once, and what could not be written counts as written from then on: the next fsync of
the same directory may succeed and write nothing. So a sync that follows a failed one proves nothing of what was there
before, unless the directory was changed in between (docs/explanation/design/failed-fsync.md).
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

#: Directories of this process whose last sync failed, and when their names changed last before it (ns).
_doubted: dict[str, int] = {}


@contextmanager
def changing(root: str | Path, below: str, path: str) -> Iterator[int]:
    """Change names in a directory within, by its descriptor, and make them durable.

    The directory is opened before: a failure that another process gets first is reported to every descriptor that was
    open by then, and to none that is opened later.

    Args:
        root, below: see ``open_directory``.
        path: what an error names.

    Raises:
        StorageDeniedError: it may not be opened, or is a link; nothing was changed.
        SyncFailedError: what was changed may not survive power loss.
    """
    fd = open_directory(root, below, f"to sync it for {path}")
    try:
        yield fd
        sync_open(fd, directory_path(root, below), path)
    finally:
        os.close(fd)


def directory_path(root: str | Path, below: str) -> str:
    """Return the absolute name of a directory below a root."""
    return f"{root}/{below}" if below else str(root)


@contextmanager
def directory_of_root(root: Path) -> Iterator[int]:
    """Open a root's directory, in which its marker is: what is absent below this descriptor is absent of the root.

    A look by name proves nothing, though the marker is seen after it: the disk may have been mounted between the two.

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
    """Make the names durable that are found in a directory.

    Args:
        root, below: see ``open_directory``.
        path: what an error names.
        unique: part of the name that is made and removed where a change is needed.
        fresh: whether to change the directory first, whatever is known of it.

    Raises:
        FileNotFoundError: there is no such directory.
        SyncFailedError: they may not survive power loss.
        StorageDeniedError: it may not be read, or is a link.
        StorageReadOnlyError: a change is needed, and not allowed.
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
    """Return whether the last sync failed, and nobody changed the directory since."""
    failed = _doubted.get(directory)
    return failed is not None and os.fstat(fd).st_mtime_ns == failed


def _change(directory: str, unique: str, fd: int) -> None:
    """Change a directory's names, so that its next sync has something to write; afterwards they are as before."""
    name = f"{TEMPORARY}{unique}"
    try:
        os.close(open_file(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=fd))
        os.unlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in FULL:
            raise
        os.utime(fd)  # a disk that is full must still be freed; to a filesystem's journal this is a change, too


def sync_open(fd: int, directory: str, path: str) -> None:
    """Make the names in an open directory durable; see ``changing``."""
    try:
        _fsync(fd)
    except OSError as error:
        _doubted[directory] = os.fstat(fd).st_mtime_ns  # the clock of files is coarse: an equal time is no change
        raise SyncFailedError(
            f"fsync of the directory of {path} failed ({error.strerror}): what was written there may not "
            f"survive power loss. Check the disk, then retry with the same writer id"
        ) from error
    _doubted.pop(directory, None)


def _fsync(fd: int) -> None:
    """Sync; of an image that is mounted to be read only, some filesystems know no fsync, and need none.

    Those answer EINVAL. EROFS is of filesystems that met an error, and are read only since: ext4, btrfs.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL or not os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise
