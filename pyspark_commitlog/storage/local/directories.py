"""Names in local directories: listed, made, and durable even after a failed fsync.

A failed fsync is reported once, then its data counts as clean: the next fsync may succeed and write nothing. It proves
nothing unless the directory changed in between (docs/explanation/design/failed-fsync.md).
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from stat import S_ISDIR

from pyspark_commitlog.errors import (
    RootNotAvailableError,
    StorageDeniedError,
    StorageReadOnlyError,
    SyncFailedError,
    UsageError,
)
from pyspark_commitlog.format.paths import ACCESS_JOURNAL, CONFIG_JOURNAL, GROUPS, REPLICAS, ROOT_MARKER, TOPICS
from pyspark_commitlog.storage.base import TEMPORARY
from pyspark_commitlog.storage.local.descriptors import descend, mode_of, open_directory, open_file
from pyspark_commitlog.storage.os_errors import FULL, READ_ONLY, explained, make_writable

#: Capacity of the memory of synced directories; a forgotten one is synced again.
_DURABLE = 512

#: Top-level directories of a log.
_OF_A_LOG = frozenset(path.partition("/")[0] for path in (TOPICS, GROUPS, REPLICAS, CONFIG_JOURNAL, ACCESS_JOURNAL))

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


def temporary_files(home: int, before_ms: int) -> Iterator[str]:
    """Yield an open directory's temporary files that changed before a time."""
    with os.scandir(home) as files:
        for file in files:
            with suppress(FileNotFoundError):  # its writer is done
                if file.name.startswith(TEMPORARY) and file.stat(follow_symlinks=False).st_mtime_ns < before_ms * 10**6:
                    yield file.name


def skip_deleted(act: object, path: str, info: tuple[object, BaseException, object]) -> None:
    """Skip what another process has deleted."""
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]


def skip_open_files(act: object, path: str, info: tuple[object, BaseException, object]) -> None:
    """Skip also files that NFS keeps while they are open, until next time."""
    error = info[1]
    if not isinstance(error, OSError) or error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
        skip_deleted(act, path, info)


def listed_names(name: str, home: int | None, *, is_expected: bool) -> list[str]:
    """Return a directory's names.

    By path, an empty one counts as absent on an expected root.
    """
    if home is None:
        names = os.listdir(name)
        if is_expected and not names:
            raise FileNotFoundError(errno.ENOENT, "it is empty", name)
        return names
    fd = open_file(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=home)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def ask_for_names(root: str, path: str) -> None:
    """Open directories, which makes an NFS client revalidate their names."""
    above = PurePosixPath(directory_path(root, path)).parents
    if _can_open(above[0]):
        return
    for directory in reversed(above[: len(PurePosixPath(path).parts)]):
        if not _can_open(directory):
            return


def _can_open(directory: PurePosixPath) -> bool:
    try:
        os.close(open_file(directory, os.O_RDONLY | os.O_DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class RootDirectories:
    """Makes directories of a root durable, and none below an unmounted disk's mount point."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: OrderedDict[str, None] = OrderedDict()

    def make(self, directory: str, new_id: Callable[[], str], *, expected: bool) -> None:
        """Make a directory and sync each new one into its parent.

        Args:
            directory: relative path; may be empty.
            new_id: makes unique names.
            expected: whether the root's marker was seen.

        Raises:
            FileNotFoundError: it would be part of a log whose disk is not mounted.
        """
        full = self._root / directory
        if self._is_durable(full) and not (expected and full == self._root):  # a mount point exists
            return
        # The maker of an existing directory may have died before the fsync: sync those once, too.
        chain = [full, *full.parents]
        below = chain.index(self._root) + 1
        while not chain[below].is_dir():
            below += 1
        place, name = (self._root, directory) if directory else (self._root.parent, self._root.name)
        with explained(place, f"make directory {name}"), self._home() as home:
            self._check_mounted(directory, home, expected)
            for path in reversed(chain[:below]):
                if self._is_durable(path):
                    continue
                self._make(path, home)
                sync_names(*self._locate_parent(path), directory, new_id(), fresh=False)
                if home is not None:
                    self._check_same(home)
                self._durable[str(path)] = None
        while len(self._durable) > _DURABLE:
            with suppress(KeyError):  # another thread removed it
                self._durable.popitem(last=False)

    @contextmanager
    def _home(self) -> Iterator[int | None]:
        """Open the root's directory; None if absent.

        By path, a directory could be made below the mount point of an unmounted disk.
        """
        try:
            home = open_directory(self._root, "", "to make directories in it")
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            yield home
        finally:
            os.close(home)

    def _check_mounted(self, directory: str, home: int | None, expected: bool) -> None:
        """Refuse a log's first directory without a marker: no disk is mounted.

        The disk would hide it once back.
        """
        top = PurePosixPath(directory).parts[:1]
        if not expected and (
            not top or top[0] not in _OF_A_LOG or (home is not None and S_ISDIR(mode_of(top[0], home)))
        ):
            return
        if home is None or not mode_of(ROOT_MARKER, home):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root / ROOT_MARKER))

    def _check_same(self, home: int) -> None:
        """Refuse to trust a sync if the root's directory has changed."""
        if not os.path.samestat(os.fstat(home), os.stat(self._root)):
            raise FileNotFoundError(errno.ENOENT, "its disk was unmounted meanwhile", str(self._root))

    def _make(self, path: Path, home: int | None) -> None:
        try:
            if home is None:
                path.mkdir(exist_ok=True)
            elif self._root in path.parents:
                self._make_below(path, home)
        except FileExistsError:
            raise UsageError(f"{path} is no directory: name one, or where to make one") from None

    def _make_below(self, path: Path, home: int) -> None:
        above = descend(home, *self._locate_parent(path))
        try:
            if not S_ISDIR(mode_of(path.name, above)):
                with suppress(FileExistsError):  # another process was first
                    os.mkdir(path.name, dir_fd=above)
                os.close(descend(above, path.parent, path.name))
        except NotADirectoryError:
            raise FileExistsError from None
        finally:
            os.close(above)

    def _locate_parent(self, path: Path) -> tuple[Path, str]:
        if self._root in path.parent.parents:
            return self._root, str(path.parent.relative_to(self._root))
        return path.parent, ""

    def _is_durable(self, directory: Path) -> bool:
        with suppress(KeyError):
            self._durable.move_to_end(str(directory))
            return directory.is_dir()
        return False
