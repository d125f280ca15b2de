"""Translate operating system errors: no space, no permission, or others."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark_commitlog.errors import (
    CorruptionError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnreadableError,
)
from pyspark_commitlog.storage.base import NotPutError, Storage

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
#: Prefixes of read-only actions.
_READING = ("read ", "list ")
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


class explained:  # noqa: N801 read as a function; a generator would cost each look at a file twice as much
    """Translate OSErrors of space or permission; "not found" and "exists" pass."""

    __slots__ = ("_action", "_root")

    def __init__(self, root: Path, action: str) -> None:
        self._root, self._action = root, action

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (FileNotFoundError, FileExistsError, StorageError)) or not isinstance(error, OSError):
            return
        if isinstance(error, NotADirectoryError) or (
            error.errno == errno.ESTALE and self._action.startswith(_READING)  # NFS: deleted while open
        ):
            raise FileNotFoundError(*error.args) from error
        raise explain(error, self._root, self._action) from error


def explain(error: OSError, root: Path, action: str) -> StorageError:
    """Our error for an OSError: action, place, advice.

    Only the caller knows whether a commit landed.
    """
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = f"{action} under {root}"
    if error.errno in FULL:
        return StorageFullError(f"cannot {where}: {reason}; free space and run again")
    if error.errno in READ_ONLY and action.startswith(_READING):
        return StorageUnreadableError(f"cannot {where}: {reason}; make it readable for this user")
    if error.errno in READ_ONLY:
        return StorageReadOnlyError(f"cannot {where}: {reason}; {make_writable(error)}")
    return StorageError(f"cannot {where}: {reason}")


def is_eio(error: BaseException | None) -> bool:
    """Whether an unreadable sector (EIO) caused an error (pure)."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EIO:
            return True
        error = error.__cause__
    return False


def make_writable(error: OSError) -> str:
    """Advice for a denied write (pure)."""
    return "mount it writable" if error.errno == errno.EROFS else "make it writable for this user"


def explain_not_put(error: OSError, root: Path, path: str) -> StorageError:
    """Error of a put that failed before its link: certain."""
    explained = explain(error, root, f"write {path}")
    if isinstance(explained, StorageFullError | StorageReadOnlyError):
        return explained
    return NotPutError(str(explained))


@contextmanager
def unreadable_is_damage(storage: Storage, path: str) -> Iterator[None]:
    """Raise EIO as damage of a file; pass other errors on."""
    try:
        yield
    except OSError as error:
        if not is_eio(error):
            raise
        raise CorruptionError(f"{path} of {storage.url} can't be read: input/output error (a bad sector)") from error
