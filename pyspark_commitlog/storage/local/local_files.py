"""Local output files (temporary until whole), entries put by a link, and append files."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from weakref import WeakSet

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import StorageDeniedError, SyncFailedError, UnsupportedError
from pyspark_commitlog.storage.base import TEMPORARY
from pyspark_commitlog.storage.limits import limits
from pyspark_commitlog.storage.local.descriptors import PASSING, open_beneath, open_directory, open_file
from pyspark_commitlog.storage.local.directories import changing
from pyspark_commitlog.storage.os_errors import FULL, READ_ONLY, explain_not_put, explained

_NOT_HERE = {errno.EOPNOTSUPP, errno.EINVAL}
#: Pieces and bytes per system call. The page cache takes larger calls in larger blocks; a virtual machine returns free
#: ones to its host, and getting them back takes ten times as long as filling them.
_MAX_IOVEC = 512
_CALL_BYTES = 2**16
#: Bytes between two write-back hints.
_WRITE_BACK_BYTES = 2**20
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
#: Unfinished files with an open descriptor.
_filling: WeakSet[LocalOutputFile] = WeakSet()


class LocalOutputFile:
    """Output file, written under a temporary name, synced and renamed.

    `stamp` sets the time of a name, for a manual clock.
    """

    def __init__(self, root: Path, path: str, unique: str, stamp: Callable[[str, int], None]) -> None:
        self._root, self._path, self._stamp = root, path, stamp
        self._directory, _, self._name = path.rpartition("/")
        self._temporary = f"{TEMPORARY}{unique}"
        self._file = self._open(os.O_CREAT | os.O_EXCL)
        self._length = self._sent = 0
        self._crc = 0

    def _open(self, flags: int) -> FileIO:
        temporary = f"{self._directory}/{self._temporary}" if self._directory else self._temporary
        fd = open_beneath(self._root, temporary, os.O_RDWR | flags, f"to write {self._path}")
        _filling.add(self)
        return FileIO(fd, "r+b")

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append pieces, batched into few system calls."""
        with explained(self._root, f"write {self._path}"):
            self._open_again()
            self._length = _write_at(self._file.fileno(), self._length, pieces)
        if self._length - self._sent >= _WRITE_BACK_BYTES:
            _write_back(self._file.fileno(), self._sent, self._length)
            self._sent = self._length
        for piece in pieces:
            self._crc = crc32c(pa.py_buffer(piece), self._crc)
        if len(_filling) > limits().files // 2:
            self._put_aside()

    def _put_aside(self) -> None:
        """Close until the next write.

        Synced first: only open descriptors get disk errors.
        """
        self._sync()
        self._file.close()
        _filling.discard(self)

    def _open_again(self) -> None:
        if self._file.closed:
            self._file = self._open(0)

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise SyncFailedError(f"fsync of {self._path} failed ({error.strerror}): it was not written") from error

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Sync, rename, sync the directory; without `durable` only rename."""
        if durable and not self._file.closed:
            self._sync()
        with explained(self._root, f"write {self._path}"):
            self._file.close()
            _filling.discard(self)
            with self._naming(durable=durable) as home:
                self._stamp(self._temporary, home)
                os.rename(self._temporary, self._name, src_dir_fd=home, dst_dir_fd=home)
        return self._length, self._crc

    @contextmanager
    def _naming(self, *, durable: bool) -> Iterator[int]:
        if durable:
            with changing(self._root, self._directory, self._path) as home:
                yield home
            return
        home = open_directory(self._root, self._directory, f"to write {self._path}", PASSING)
        try:
            yield home
        finally:
            os.close(home)

    def discard(self) -> None:
        """Close and delete the temporary file."""
        self._file.close()
        _filling.discard(self)
        with suppress(FileNotFoundError, StorageDeniedError), self._naming(durable=False) as home:
            os.unlink(self._temporary, dir_fd=home)


class LocalAppendFile:
    """Append file on a local disk."""

    def __init__(self, root: Path, path: str) -> None:
        self._root, self._path = root, path
        self._fd = open_beneath(root, path, os.O_RDWR | os.O_CREAT, f"to write {path}")

    def write_at(self, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
        """Write pieces, batched into few system calls."""
        with explained(self._root, f"write {self._path}"):
            end = _write_at(self._fd, position, pieces)
        if end - position >= _WRITE_BACK_BYTES:
            _write_back(self._fd, position, end)
        return end

    def truncate(self, length: int) -> None:
        """Cut or extend."""
        with explained(self._root, f"write {self._path}"):
            os.ftruncate(self._fd, length)

    def reserve(self, length: int) -> None:
        """Extend by posix_fallocate; without reservation if unsupported."""
        size = os.fstat(self._fd).st_size
        if size >= length:
            return
        fallocate = getattr(os, "posix_fallocate", None)  # not on macOS
        with explained(self._root, f"reserve {length} bytes for {self._path}"):
            try:
                if fallocate is not None:
                    fallocate(self._fd, size, length - size)
                    return
            except OSError as error:
                with suppress(OSError):  # free half a reservation on a full disk
                    os.ftruncate(self._fd, size)
                if error.errno not in _NOT_HERE:
                    raise
            os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """Call fsync; a failure is final, as the kernel dropped the data."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailedError(f"fsync of {self._path} failed ({error.strerror}); nothing was published") from error

    def close(self) -> None:
        """Close without syncing."""
        os.close(self._fd)


def _write_at(fd: int, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
    for views in _calls(pieces):
        position = _write_vector(fd, position, views)
    return position


def _calls(pieces: Sequence[bytes | memoryview | pa.Buffer]) -> Iterator[list[memoryview]]:
    views: list[memoryview] = []
    room = _CALL_BYTES
    for piece in pieces:
        rest = memoryview(piece).cast("B")  # Arrow's format is signed bytes
        while rest:
            views.append(rest[:room])
            rest, room = rest[room:], room - len(views[-1])
            if not room or len(views) == _MAX_IOVEC:
                yield views
                views, room = [], _CALL_BYTES
    if views:
        yield views


def _write_vector(fd: int, position: int, views: list[memoryview]) -> int:
    total = sum(view.nbytes for view in views)
    written = os.pwritev(fd, views, position)
    if written < total:  # rare: signal or full disk
        rest = memoryview(b"".join(views))[written:]
        while rest:
            step = os.pwrite(fd, rest, position + written)
            written, rest = written + step, rest[step:]
    return position + total


def _write_back(fd: int, start: int, end: int) -> None:
    """Start writing a range to disk, so that fsync waits less (Linux)."""
    begin = _sync_file_range()
    if begin is not None:
        begin(fd, start, end - start, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """System call, which Python lacks; None on macOS."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def write_again(fd: int) -> None:
    """Rewrite a file's bytes, so that its next sync writes."""
    position, piece = 0, os.pread(fd, _WRITE_BACK_BYTES, 0)
    while piece:
        position = _write_at(fd, position, [piece])
        piece = os.pread(fd, _WRITE_BACK_BYTES, position)


def write_temporary(home: int, unique: str, data: bytes, stamp: Callable[[str, int], None]) -> str:
    """Write and sync a temporary file in an open directory; return its name."""
    temporary = f"{TEMPORARY}{unique}"
    fd = open_file(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=home)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
        stamp(temporary, home)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=home)
        raise
    finally:
        os.close(fd)
    return temporary


def link_temporary(home: int, temporary: str, name: str, root: Path, path: str) -> None:
    """Give a temporary file its name unless that is taken, and drop the temporary one.

    `root`, `path`: for errors.

    Raises:
        FileExistsError: the name is taken.
        UnsupportedError: the filesystem has no hard links.
        StorageFullError, StorageDeniedError: certainly not put.
    """
    try:
        os.link(temporary, name, src_dir_fd=home, dst_dir_fd=home, follow_symlinks=False)
    except OSError as error:
        if _has_no_links(error, home):
            raise UnsupportedError(
                f"cannot write {path} under {root}: the filesystem has no hard links ({error.strerror}), on "
                "which every commit rests: use a local disk, NFS, or a bucket as s3://…, "
                "gs://… or az://…"
            ) from error
        if error.errno in FULL | READ_ONLY:
            raise explain_not_put(error, root, path) from error
        raise
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=home)


def _has_no_links(error: OSError, home: int) -> bool:
    """Whether a filesystem lacks hard links; some (FAT) report EPERM."""
    if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
        return True
    return error.errno == errno.EPERM and os.access(".", os.W_OK, dir_fd=home)
