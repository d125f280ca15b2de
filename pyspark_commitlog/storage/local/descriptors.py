"""Descriptors above the standard streams', opened without following links below the root.

A link in a shared root could redirect another user's writes, so every written path is opened from the root down with
`O_NOFOLLOW`. Only the root's own path may have links.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from stat import S_ISDIR, S_ISLNK, S_ISREG

from pyspark_commitlog.errors import StorageDeniedError, StorageUnreadableError
from pyspark_commitlog.storage.process import STANDARD

#: For directories on the way, which need not be readable. macOS lacks the flag.
PASSING = getattr(os, "O_PATH", os.O_RDONLY)
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
_FIRST = STANDARD.stop


def open_file(path: str | PurePath, flags: int, *, dir_fd: int | None = None) -> int:
    """Open above the standard streams' descriptors, which programs print to.

    Arguments as for `os.open`; the umask applies.
    """
    fd = os.open(path, flags, 0o666, dir_fd=dir_fd)
    return fd if fd >= _FIRST else above_standard(fd)


def above_standard(fd: int) -> int:
    """Move a descriptor above the standard streams'; /dev/null replaces it.

    The number is never free in between.
    """
    if fd >= _FIRST:
        return fd
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    except OSError:
        os.close(fd)
        raise
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, fd)
    if null >= _FIRST:
        os.close(null)
    return moved


def open_directory(root: str | Path, below: str, why: str, flags: int = os.O_RDONLY) -> int:
    """Open a directory below a root, refusing links.

    Args:
        root: absolute path; links in it are followed.
        below: relative path; may be empty.
        why: for errors, "to …".
        flags: `PASSING` if only names in it are used.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        StorageDeniedError: it is, or is below, a link.
        StorageUnreadableError: it may not be read.
    """
    name = f"{root}/{below}" if below else str(root)
    try:
        home = open_file(root, (PASSING if below else flags) | os.O_DIRECTORY)
        if not below:
            return home
        try:
            return descend(home, root, below, flags)
        finally:
            os.close(home)
    except OSError as error:
        if error.errno not in _DENIED:
            raise
        raise StorageUnreadableError(
            f"cannot read the directory {name}, {why}: {error.strerror}; make it readable for this user"
        ) from error


def descend(home: int, root: str | Path, below: str, flags: int = PASSING) -> int:
    """Open a directory below `home`, an open `root`; see `open_directory`."""
    at, parts = home, below.split("/") if below else ["."]
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        try:
            inner = open_file(part, (flags if last else PASSING) | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        except OSError as error:
            error.filename = f"{root}/{'/'.join(parts[:number])}"
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(part, at):
                raise _refused(error.filename, "a symbolic link") from error
            raise
        finally:
            if at != home:
                os.close(at)
        at = inner
    return at


def open_beneath(root: str | Path, path: str, flags: int, why: str, home: int | None = None) -> int:
    """Open a regular file below a root, like `open_directory`.

    `home`: the root's descriptor, if open.
    """
    directory, _, name = path.rpartition("/")
    parent = open_directory(root, directory, why, PASSING) if home is None else descend(home, root, directory)
    try:
        return open_inside(parent, name, f"{root}/{path}", flags)
    finally:
        os.close(parent)


def open_inside(home: int, name: str, full: str, flags: int) -> int:
    """Open a regular file, not a link, in an open directory.

    `full`: its path, for errors.
    """
    try:
        fd = open_file(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=home)
    except OSError as error:
        error.filename = full
        if error.errno == errno.ELOOP:
            raise _refused(full, "a symbolic link") from error
        raise
    try:
        check_kind(os.fstat(fd), full)
    except OSError:
        os.close(fd)
        raise
    return fd


def check_kind(stat: os.stat_result, full: str) -> None:
    """Refuse anything but files and directories: a pipe would block.

    Raises:
        StorageDeniedError: it is something else.
    """
    if not S_ISREG(stat.st_mode) and not S_ISDIR(stat.st_mode):
        raise _refused(full, "no regular file")


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def mode_of(path: str, home: int) -> int:
    """Mode of a name below an open directory; 0 if there is none."""
    try:
        return os.stat(path, dir_fd=home, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _is_link(name: str, home: int) -> bool:
    with suppress(OSError):
        return S_ISLNK(os.stat(name, dir_fd=home, follow_symlinks=False).st_mode)
    return False


def _refused(full: str, kind: str) -> StorageDeniedError:
    return StorageDeniedError(
        f"cannot use {full}: it is {kind}, and below a root there are directories and regular files only. Nothing was "
        "written through it; look up its owner (ls -l), and remove it, or put in its place what belongs there"
    )
