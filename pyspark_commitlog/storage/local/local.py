"""Storage in a local directory: hard links, mmap and OS locks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from stat import S_ISDIR
from typing import TypeVar

import pyarrow as pa

from pyspark_commitlog.errors import RootNotAvailableError, StorageError, SyncFailedError, UsageError
from pyspark_commitlog.storage.base import TEMPORARY, FileInfo, Holder, NotPutError, Storage, write_whole
from pyspark_commitlog.storage.clock import Clock, SystemClock
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.local.descriptors import (
    PASSING,
    check_kind,
    closing,
    descend,
    mode_of,
    open_beneath,
    open_directory,
    open_file,
)
from pyspark_commitlog.storage.local.directories import (
    RootDirectories,
    ask_for_names,
    directory_of_root,
    directory_path,
    listed_names,
    skip_deleted,
    skip_open_files,
    sync_names,
    sync_open,
    temporary_files,
)
from pyspark_commitlog.storage.local.local_files import (
    LocalAppendFile,
    LocalOutputFile,
    link_temporary,
    write_again,
    write_temporary,
)
from pyspark_commitlog.storage.local.mapping import mapped
from pyspark_commitlog.storage.local.mounts import LOCAL_TYPES, mount_source, mount_type
from pyspark_commitlog.storage.local.os_locks import OsLock
from pyspark_commitlog.storage.local.turns import Turns, process_turns
from pyspark_commitlog.storage.os_errors import explain_not_put, explained
from pyspark_commitlog.storage.process import process_name

_T = TypeVar("_T")

#: Suffix of a lock's note, and its maximum size.
HOLDER = ".holder"
_NOTE_BYTES = 4096
#: NFS's name for a deleted file that is still open.
_DELETED_BUT_OPEN = re.compile(r"\.nfs[0-9a-f]{24}")

#: Files whose last sync failed in this process: unwritten data counts as clean.
_doubted_files: set[str] = set()


class LocalStorage(Storage):
    """A root directory on a mounted filesystem.

    A manual `clock` also stamps files.
    """

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._root = Path(root).absolute()
        self.url = str(self._root)
        self.clock = clock or SystemClock()
        self._stamps = clock is not None
        self._can_append: bool | None = None
        self._client: str | None = None
        self._directories = RootDirectories(self._root)
        self._turns: Turns | None = None
        self._expected = False

    def expect_root(self) -> None:
        self._expected = True

    @property
    def can_append(self) -> bool:  # type: ignore[override]
        """Whether this mount is a local disk."""
        if self._can_append is None:
            self._can_append = mount_type(self._root) in LOCAL_TYPES
        return self._can_append

    @property
    def client(self) -> str:  # type: ignore[override]
        """The mount's kind and source, and the system; empty if local."""
        if self._client is None:
            kind, system = mount_type(self._root), os.uname()
            source = hashlib.sha256(mount_source(self._root).encode()).hexdigest()[:16]  # may contain a password
            mount = f"mount {kind}, source {source}, {system.sysname} {system.release}"
            self._client = "" if kind in LOCAL_TYPES else mount
        return self._client

    def place(self) -> object:
        """Directory's inode, equal across symlinks and bind mounts."""
        try:
            found = os.stat(self._root)
        except OSError:
            return str(self._root.resolve())
        return found.st_dev, found.st_ino

    def device(self) -> object:
        """Device of the directory or its nearest existing parent."""
        for directory in (self._root, *self._root.parents):
            with suppress(OSError):
                return os.stat(directory).st_dev
        return None

    def _name(self, path: str) -> str:
        """Return an absolute path; plain text for speed."""
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"path {path!r} leaves the root {self._root}")
        return f"{self.url}/{path}" if path else self.url

    # --- writing -----------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Write and sync a temporary file, link it, sync the directory."""
        self._name(path)
        directory, _, name = path.rpartition("/")
        with self._not_put(path):
            home = open_directory(self.url, directory, f"to write {path}")
        try:
            with self._not_put(path):
                temporary = write_temporary(home, self.new_id(), data, self._stamp)
            link_temporary(home, temporary, name, self._root, path)
            sync_open(home, directory_path(self.url, directory), path)
        finally:
            os.close(home)
        return None

    def _missing(self, path: str) -> str:
        if self._expected:
            try:
                with directory_of_root(self._root):
                    pass
            except RootNotAvailableError as error:
                return str(error)
        return f"its directory is gone under {self._root}"

    @contextmanager
    def _needing(self, directory: str) -> Iterator[None]:
        """Raise `RootNotAvailableError` if a directory is missing with the root.

        Also if it is back by now.
        """
        try:
            yield
        except FileNotFoundError:
            if not self._expected:
                raise
            with directory_of_root(self._root) as home:
                if S_ISDIR(mode_of(directory or ".", home)):
                    raise RootNotAvailableError.at(self.url) from None
            raise

    @contextmanager
    def _not_put(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotPutError(f"cannot write {path}: {self._missing(path)}") from error
        except StorageError:
            raise
        except OSError as error:
            raise explain_not_put(error, self._root, path) from error

    def _stamp(self, name: str, home: int) -> None:
        if self._stamps:
            now = self.clock.now_ms() * 1_000_000
            os.utime(name, ns=(now, now), dir_fd=home, follow_symlinks=False)

    def write_once(self, path: str, data: bytes) -> None:
        write_whole(self.create(path), data)

    def create(self, path: str) -> LocalOutputFile:
        self._name(path)
        directory = str(PurePosixPath(path).parent)
        self.make_directory(directory)
        with self._needing(directory), explained(self._root, f"write {path}"):
            return LocalOutputFile(self._root, path, self.new_id(), self._stamp)

    def open_append(self, path: str) -> LocalAppendFile:
        self._name(path)
        with self._needing(str(PurePosixPath(path).parent)), explained(self._root, f"write {path}"):
            return LocalAppendFile(self._root, path)

    def make_directory(self, directory: str) -> None:
        self._name(directory)
        with self._needing(""):
            self._directories.make(directory, self.new_id, expected=self._expected)

    def sync_file(self, path: str) -> None:
        name, why = self._name(path), f"to sync {path}"
        if name in _doubted_files:
            with explained(self._root, f"write {path}"), closing(open_beneath(self.url, path, os.O_RDWR, why)) as fd:
                write_again(fd)
        with explained(self._root, f"read {path}"):
            fd = self._looked(path, lambda _, home: open_beneath(self.url, path, os.O_RDONLY, why, home))
        with closing(fd):
            try:
                os.fsync(fd)
            except OSError as error:
                _doubted_files.add(name)
                raise SyncFailedError(
                    f"fsync of {path} failed ({error.strerror}): it may not survive power loss"
                ) from error
        _doubted_files.discard(name)

    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        self._name(directory)
        try:
            with self._needing(directory):
                sync_names(self.url, directory, directory, self.new_id(), fresh=fresh)
        except RootNotAvailableError:  # or another process has just made it
            with self._needing(directory):
                sync_names(self.url, directory, directory, self.new_id(), fresh=fresh)

    def delete(self, path: str) -> None:
        self._name(path)
        with suppress(FileNotFoundError), explained(self._root, f"delete {path}"):
            self._looked(path, lambda _, home: self._unlink(path, home))

    def _unlink(self, path: str, home: int | None) -> None:
        with self._parent(path, f"to delete {path}", home) as (parent, name):
            os.unlink(name, dir_fd=parent)

    @contextmanager
    def _parent(self, path: str, why: str, home: int | None = None) -> Iterator[tuple[int, str]]:
        directory, _, name = path.rpartition("/")
        if home is None:
            parent = open_directory(self.url, directory, why, PASSING)
        else:
            parent = descend(home, self.url, directory)
        with closing(parent):
            yield parent, name

    def delete_tree(self, directory: str) -> None:
        onerror = skip_deleted if self.can_append else skip_open_files
        full = self._name(directory)
        with suppress(FileNotFoundError), self._needing(directory), explained(self._root, f"delete {directory}"):
            if not directory:
                shutil.rmtree(full, onerror=onerror)
                return
            with self._parent(directory, f"to delete {directory}") as (home, name):
                shutil.rmtree(name, onerror=onerror, dir_fd=home)

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Take an OS lock, released at its holder's death; keep its file."""
        self._name(path)
        lock = OsLock(self._root, path)
        try:
            with self._needing(str(PurePosixPath(path).parent)), explained(self._root, f"lock {path}"):
                held = lock.take()
            if held:
                self._sign(path)
            else:
                lock.let_go()  # it may hold a file that now has another path
            yield held
        finally:
            try:
                lock.let_go()
            except BaseException:  # Ctrl-C before it was done
                lock.let_go()
                raise

    def _sign(self, path: str) -> None:
        host, _, pid = process_name().rpartition("/")
        note = {"host": host, "pid": int(pid), "since": self.clock.now_ms()}
        flags, why = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, f"to lock {path}"
        with suppress(OSError), closing(open_beneath(self.url, f"{path}{HOLDER}", flags, why)) as fd:
            os.write(fd, f"{json.dumps(note)}\n".encode())  # tolerate a full disk

    def holder(self, path: str) -> Holder:
        try:
            note = json.loads(self.read(f"{path}{HOLDER}", 0, _NOTE_BYTES))
            holder = Holder(str(note["host"]), int(note["pid"]), int(note["since"]))
            str(holder)  # raises if out of datetime's range
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return Holder()
        return holder

    @contextmanager
    def turn(self, directory: str, seconds: float) -> Iterator[bool]:
        """Take an OS lock on the directory itself."""
        turns = self._turns or process_turns.value
        taken = turns.take(self._name(directory), seconds) if self.can_append else None
        try:
            yield taken is not None
        finally:
            if taken is not None:
                try:
                    turns.give(taken)
                except BaseException:  # Ctrl-C before it was done
                    turns.give(taken)
                    raise

    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        self._name(directory)
        removed = 0
        with (
            suppress(FileNotFoundError),
            self._needing(directory),
            explained(self._root, f"clean {directory}"),
            closing(open_directory(self.url, directory, "to clean it")) as home,
        ):
            for name in temporary_files(home, before_ms):
                with suppress(FileNotFoundError):  # another process removes them, too
                    os.unlink(name, dir_fd=home)
                    removed += 1
        return removed

    def follow(self, events: Events, directory: str) -> int | None:
        """Follow on local disks only: elsewhere other machines write, too."""
        return events.follow(self._name(directory)) if self.can_append else None

    # --- reading -----------------------------------------------------------------------------------------

    def _looked(self, path: str, look: Callable[[str, int | None], _T]) -> _T:
        """Look by path, and again at an absent name.

        On network mounts past the client's cache, which may lack a name or lead to a deleted file; on an expected root
        below the directory with the marker. `look` takes a name and its directory's descriptor.
        """
        try:
            return look(self._name(path), None)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                raise
            if self.can_append and not self._expected:
                raise
        if not self.can_append:
            ask_for_names(self.url, path)
        if not self._expected:
            return look(self._name(path), None)
        with directory_of_root(self._root) as home:
            return look(path or ".", home)

    def _opened(self, path: str, act: Callable[[int, os.stat_result], _T]) -> _T:
        def look(name: str, home: int | None) -> _T:
            fd = open_file(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=home)
            try:
                stat = os.fstat(fd)
                check_kind(stat, name)
                return act(fd, stat)
            finally:
                os.close(fd)

        with explained(self._root, f"read {path}"):
            return self._looked(path, look)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:

        def act(fd: int, stat: os.stat_result) -> bytes:
            with open(fd, "rb", closefd=False) as file:
                left = max(0, stat.st_size - start)
                file.seek(start)
                return file.read(left if length is None else min(length, left))

        return self._opened(path, act)

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """Read and stat one open file."""
        return self._opened(path, lambda fd, stat: (os.read(fd, length), _file_info(stat)))

    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        """Map only the given range, which no settler still writes."""

        def act(fd: int, stat: os.stat_result) -> pa.Buffer:
            there = min(length, stat.st_size - start)
            if there <= 0:
                return pa.py_buffer(b"")
            if not self.can_append:  # NFS may truncate a mapped file
                return pa.py_buffer(os.pread(fd, there, start))
            return mapped(fd, start, there)

        return self._opened(path, act)

    def info(self, path: str) -> FileInfo:
        """Stat; on NFS by opening, which asks the server."""
        if not self.can_append:
            return self._opened(path, lambda _, stat: _file_info(stat))
        with explained(self._root, f"read {path}"):
            return _file_info(self._looked(path, lambda name, home: os.stat(name, dir_fd=home)))

    def exists(self, path: str) -> bool:
        """See `Storage`; fast, as each commit asks."""
        if not self.can_append:
            return super().exists(path)
        try:
            os.stat(self._name(path))
        except FileNotFoundError:
            if not self._expected:
                return False
        except OSError:
            return super().exists(path)  # explains the failure
        else:
            return True
        with explained(self._root, f"read {path}"), directory_of_root(self._root) as home:
            return bool(mode_of(path, home))

    def names(self, directory: str) -> list[str]:
        try:
            with explained(self._root, f"list {directory}"):
                names = self._looked(directory, partial(listed_names, is_expected=self._expected))
        except FileNotFoundError:
            return []
        shown = (name for name in names if not name.startswith(TEMPORARY))
        return sorted(shown if self.can_append else (name for name in shown if not _DELETED_BUT_OPEN.fullmatch(name)))

    def new_id(self) -> str:
        """Return a fresh uuid."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()


def _file_info(stat: os.stat_result) -> FileInfo:
    return FileInfo(stat.st_size, stat.st_mtime_ns // 1_000_000, f"{stat.st_ino}-{stat.st_mtime_ns}")
