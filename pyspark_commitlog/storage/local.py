"""The door to a directory on this machine: links for put-if-absent, mmap for reads, OS locks for settlers."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

import google_crc32c
import pyarrow as pa

from pyspark_commitlog.errors import (
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    SyncFailedError,
    UsageError,
)
from pyspark_commitlog.storage.base import TEMPORARY, Clock, FileInfo, NotPutError, Storage
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.turns import Turns

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_HERE = {errno.EOPNOTSUPP, errno.EINVAL}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# Filesystems of this machine's own disks: locks and appends hold there. Others (nfs, 9p, fuse…) are read and
# written without appending in place.
_LOCAL_TYPES = frozenset(
    [
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "f2fs",
        "jfs",
        "reiserfs",
        "bcachefs",
        "tmpfs",
        "ramfs",
        "overlay",
        "apfs",
        "hfs",
        "vfat",
        "exfat",
    ]
)
#: Pieces and bytes per system call. What is written by larger calls is cached in larger blocks of memory. Free ones of
#: those a virtual machine gives back to its host, and to get them again takes ten times as long as to fill them.
_MAX_IOVEC = 512
_CALL_BYTES = 2**16
#: Of a file that is being written, bytes that are sent to the disk together.
_WRITE_BACK_BYTES = 2**20
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h


class SystemClock:
    """This machine's clock; on a local disk also the clock of the files."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@contextmanager
def _explained(root: Path, action: str) -> Iterator[None]:
    """Turn an OSError about space or permission into ours; let "not found" and "exists" pass."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, StorageError):
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from error
    except OSError as error:
        raise explain(error, root, action) from error


def explain(error: OSError, root: Path, action: str) -> StorageError:
    """Return our error for an OSError: what was tried, where, and what to do next."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = f"{action} under {root}"
    if error.errno in _FULL:
        return StorageFullError(f"cannot {where}: {reason}. Nothing was committed; free space and run again.")
    if error.errno in _READ_ONLY:
        return StorageReadOnlyError(
            f"cannot {where}: {reason}. Nothing was committed; make the root writable for this user."
        )
    return StorageError(f"cannot {where}: {reason}")


class LocalStorage(Storage):
    """A root directory on a local filesystem.

    ``clock`` stamps files too when it is not the system's, so that tests can let files grow old.
    """

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._root = Path(root).absolute()
        self.url = str(self._root)
        self.clock = clock or SystemClock()
        self._stamps = clock is not None
        self._can_append: bool | None = None
        self._durable: set[Path] = set()
        self._turns = Turns()

    @property
    def can_append(self) -> bool:  # type: ignore[override]
        """Whether this mount is a local disk."""
        if self._can_append is None:
            self._can_append = mount_type(self._root) in _LOCAL_TYPES
        return self._can_append

    def _name(self, path: str) -> str:
        """Return the absolute name of a path; text only, as every small read comes through here."""
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"path {path!r} leaves the root {self._root}")
        return f"{self.url}/{path}" if path else self.url

    def _full(self, path: str) -> Path:
        return Path(self._name(path))

    # --- writing -----------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> None:
        """See ``Storage.put_if_absent``: a synced temporary file, a link, the directory synced."""
        target = self._full(path)
        try:
            temporary = self._write_temporary(target, data)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise NotPutError(f"cannot write {path}: its directory is gone under {self._root}") from error
            raise explain_not_put(error, self._root, path) from error
        try:
            os.link(temporary, target)
        except OSError as error:
            if error.errno in _FULL | _READ_ONLY:
                raise explain_not_put(error, self._root, path) from error
            raise
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        self._sync_path(target.parent, path)

    def _write_temporary(self, target: Path, data: bytes) -> Path:
        temporary = target.with_name(f"{TEMPORARY}{self.new_id()}")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._stamp(temporary)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        return temporary

    def _stamp(self, path: Path) -> None:
        if self._stamps:
            now = self.clock.now_ms() * 1_000_000
            os.utime(path, ns=(now, now))

    def write_once(self, path: str, data: bytes) -> None:
        """See ``Storage.write_once``."""
        output = self.create(path)
        try:
            output.write(data)
            output.close()
        except BaseException:
            output.discard()
            raise

    def create(self, path: str) -> LocalOutputFile:
        """See ``Storage.create``."""
        target = self._full(path)
        self.make_directory(str(PurePosixPath(path).parent))
        with _explained(self._root, f"write {path}"):
            return LocalOutputFile(self, target, path)

    def open_append(self, path: str) -> LocalAppendFile:
        """See ``Storage.open_append``."""
        with _explained(self._root, f"write {path}"):
            return LocalAppendFile(self._root, self._full(path), path)

    def make_directory(self, directory: str) -> None:
        """See ``Storage.make_directory``: every directory made is synced into its parent."""
        full = self._full(directory)
        if full in self._durable and full.is_dir():
            return
        # One below the root that is there may have lost its maker before the fsync: those are synced once too.
        chain = [full, *full.parents]
        below = chain.index(self._root) + 1
        while not chain[below].is_dir():
            below += 1
        with _explained(self._root, f"make directory {directory}"):
            for path in reversed(chain[:below]):
                path.mkdir(exist_ok=True)
                if path not in self._durable:
                    self._sync_path(path.parent, directory)
                    self._durable.add(path)

    def sync_file(self, path: str) -> None:
        """See ``Storage.sync_file``."""
        with open(self._name(path), "rb") as file:
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise SyncFailedError(
                    f"fsync of {path} failed ({error.strerror}): it may not survive power loss; nothing was committed"
                ) from error

    def sync_directory(self, directory: str) -> None:
        """See ``Storage.sync_directory``."""
        self._sync_path(self._full(directory), directory)

    def _sync_path(self, full: Path, path: str) -> None:
        try:
            fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SyncFailedError(
                f"fsync of the directory of {path} failed ({error.strerror}): what was written there may not "
                f"survive power loss. Check the disk, then retry with the same writer id."
            ) from error

    def delete(self, path: str) -> None:
        """See ``Storage.delete``."""
        with suppress(FileNotFoundError), _explained(self._root, f"delete {path}"):
            self._full(path).unlink()

    def delete_tree(self, directory: str) -> None:
        """See ``Storage.delete_tree``."""
        with suppress(FileNotFoundError), _explained(self._root, f"delete {directory}"):
            shutil.rmtree(self._full(directory))

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """See ``Storage.try_lock``: an OS lock that dies with its holder; its file is never unlinked."""
        from filelock import FileLock, Timeout

        with _explained(self._root, f"lock {path}"):
            lock = FileLock(str(self._full(path)), timeout=0, thread_local=False, preserve_lock_file=True)
            try:
                lock.acquire()
                held = True
            except Timeout:
                held = False
        try:
            yield held
        finally:
            if held:
                lock.release()

    @contextmanager
    def turn(self, directory: str, seconds: float) -> Iterator[bool]:
        """See ``Storage.turn``: an OS lock on the directory itself."""
        taken = self._turns.take(self._name(directory), seconds) if self.can_append else None
        try:
            yield taken is not None
        finally:
            if taken is not None:
                self._turns.give(taken)

    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        """See ``Storage.remove_abandoned``."""
        removed = 0
        with suppress(FileNotFoundError), _explained(self._root, f"clean {directory}"):
            for found in os.scandir(self._full(directory)):
                if found.name.startswith(TEMPORARY) and found.stat().st_mtime_ns // 1_000_000 < before_ms:
                    os.unlink(found.path)
                    removed += 1
        return removed

    def follow(self, events: Events, directory: str) -> int | None:
        """See ``Storage.follow``: on local disks, since no other machine writes there."""
        return events.follow(self._name(directory)) if self.can_append else None

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See ``Storage.read``."""
        with _explained(self._root, f"read {path}"), open(self._name(path), "rb") as file:
            left = max(0, os.fstat(file.fileno()).st_size - start)
            file.seek(start)
            return file.read(left if length is None else min(length, left))

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """See ``Storage.fetch``: one open file answers both."""
        with _explained(self._root, f"read {path}"), open(self._name(path), "rb", buffering=0) as file:
            return file.read(length), _file_info(os.fstat(file.fileno()))

    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        """See ``Storage.map``: only the asked range is mapped, never what a settler may still write."""
        with _explained(self._root, f"read {path}"):
            fd = os.open(self._name(path), os.O_RDONLY)
            try:
                length = min(length, os.fstat(fd).st_size - start)
                if length <= 0:
                    return pa.py_buffer(b"")
                if not self.can_append:  # a mapped file may be cut under us on NFS: copy instead
                    return pa.py_buffer(os.pread(fd, length, start))
                aligned = start - start % mmap.ALLOCATIONGRANULARITY
                mapped = mmap.mmap(fd, length + start - aligned, access=mmap.ACCESS_READ, offset=aligned)
            finally:
                os.close(fd)
        return pa.py_buffer(mapped).slice(start - aligned, length)

    def info(self, path: str) -> FileInfo:
        """See ``Storage.info``."""
        with _explained(self._root, f"read {path}"):
            return _file_info(os.stat(self._name(path)))

    def names(self, directory: str) -> list[str]:
        """See ``Storage.names``."""
        try:
            with _explained(self._root, f"list {directory}"):
                found = os.listdir(self._name(directory))
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith(TEMPORARY))

    def new_id(self) -> str:
        """Return a fresh uuid."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()


def _file_info(stat: os.stat_result) -> FileInfo:
    return FileInfo(stat.st_size, stat.st_mtime_ns // 1_000_000, f"{stat.st_ino}-{stat.st_mtime_ns}")


def explain_not_put(error: OSError, root: Path, path: str) -> StorageError:
    """Return the error of a put that failed before its link: certain, and told as space or permission."""
    told = explain(error, root, f"write {path}")
    if isinstance(told, StorageFullError | StorageReadOnlyError):
        return told
    return NotPutError(str(told))


class LocalOutputFile:
    """See ``storage.base.OutputFile``: written under a temporary name, renamed when whole and synced."""

    def __init__(self, storage: LocalStorage, target: Path, path: str) -> None:
        self._storage, self._target, self._path = storage, target, path
        self._temporary = target.with_name(f"{TEMPORARY}{storage.new_id()}")
        self._file = open(self._temporary, "xb", buffering=0)  # noqa: SIM115 closed by close or discard
        self._length = self._sent = 0
        self._crc = 0

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append with few system calls, whatever the number of pieces."""
        with _explained(self._target.parent, f"write {self._path}"):
            self._length = _write_at(self._file.fileno(), self._length, pieces)
        if self._length - self._sent >= _WRITE_BACK_BYTES:
            _write_back(self._file.fileno(), self._sent, self._length)
            self._sent = self._length
        for piece in pieces:
            self._crc = google_crc32c.extend(self._crc, pa.py_buffer(piece))

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Sync, rename, sync the directory; only rename where it need not be durable."""
        try:
            if durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise SyncFailedError(f"fsync of {self._path} failed ({error.strerror}); nothing was committed") from error
        with _explained(self._target.parent, f"write {self._path}"):
            self._file.close()
            self._storage._stamp(self._temporary)
            os.rename(self._temporary, self._target)
        if durable:
            self._storage._sync_path(self._target.parent, self._path)
        return self._length, self._crc

    def discard(self) -> None:
        """Close and remove the temporary file."""
        self._file.close()
        with suppress(FileNotFoundError):
            self._temporary.unlink()


class LocalAppendFile:
    """See ``storage.base.AppendFile``."""

    def __init__(self, root: Path, full: Path, path: str) -> None:
        self._root, self._path = root, path
        self._fd = os.open(full, os.O_RDWR | os.O_CREAT, 0o666)  # less the umask, as of all other files

    def write_at(self, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
        """Write with few system calls, whatever the number of pieces."""
        with _explained(self._root, f"write {self._path}"):
            end = _write_at(self._fd, position, pieces)
        if end - position >= _WRITE_BACK_BYTES:
            _write_back(self._fd, position, end)
        return end

    def truncate(self, length: int) -> None:
        """Cut or extend."""
        with _explained(self._root, f"write {self._path}"):
            os.ftruncate(self._fd, length)

    def reserve(self, length: int) -> None:
        """Extend with posix_fallocate; without reserving anything where system or filesystem has none."""
        size = os.fstat(self._fd).st_size
        if size >= length:
            return
        fallocate = getattr(os, "posix_fallocate", None)  # not on macOS
        with _explained(self._root, f"reserve {length} bytes for {self._path}"):
            try:
                if fallocate is not None:
                    fallocate(self._fd, size, length - size)
                    return
            except OSError as error:
                with suppress(OSError):  # a disk that is full must not stay so by half a reservation
                    os.ftruncate(self._fd, size)
                if error.errno not in _NOT_HERE:
                    raise
            os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """fsync; a failure is final (what the kernel dropped can't be written again)."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailedError(f"fsync of {self._path} failed ({error.strerror}); nothing was published") from error

    def close(self) -> None:
        """Close without syncing."""
        os.close(self._fd)


def _write_at(fd: int, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
    """Write pieces one after the other from ``position``; return the position behind them."""
    for views in _calls(pieces):
        position = _write_vector(fd, position, views)
    return position


def _calls(pieces: Sequence[bytes | memoryview | pa.Buffer]) -> Iterator[list[memoryview]]:
    """Yield what goes into one system call each: pieces, or parts of them."""
    views: list[memoryview] = []
    room = _CALL_BYTES
    for piece in pieces:
        rest = memoryview(piece).cast("B")  # Arrow says signed bytes
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
    if written < total:  # rare: a signal or a full disk; the rest, one copy
        rest = memoryview(b"".join(views))[written:]
        while rest:
            step = os.pwrite(fd, rest, position + written)
            written, rest = written + step, rest[step:]
    return position + total


def _write_back(fd: int, start: int, end: int) -> None:
    """Have the system begin to write a range to the disk, so that an fsync later waits for little; a hint (Linux)."""
    begin = _sync_file_range()
    if begin is not None:
        begin(fd, start, end - start, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the system's call, which Python has no name for; None where there is none (macOS)."""
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found


def mount_type(path: Path) -> str:
    """Return the type of the filesystem that holds ``path``; ``apfs`` where the system does not tell (macOS)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except FileNotFoundError:
        return "apfs"
    real = os.path.realpath(path)
    best, found = "", "unknown"
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, found = point, right.split()[0]
    return found
