"""A local directory keeps the contract, and its own promises when the disk fails."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.errors import (
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnreadableError,
    SyncFailedError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.storage import NotPutError, open_peer, open_storage
from pyspark_commitlog.storage.local import local, local_files
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.os_locks import OsLock
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.testing.storage_contract import Opener, StorageContract
from tests.support.directory import RawDirectory
from tests.support.peak import peak_of
from tests.support.records import append, batch_of
from tests.support.syscalls import path_of

FULL = (errno.ENOSPC, errno.EDQUOT)
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
REFUSED = [(code, StorageFullError) for code in FULL] + [(code, StorageReadOnlyError) for code in READ_ONLY]


class TestLocalStorage(RawDirectory, StorageContract):
    """The contract, on a directory."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        (tmp_path / "root").mkdir()
        return partial(LocalStorage, tmp_path / "root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def storage(root: Path) -> LocalStorage:
    local = LocalStorage(root)
    local.make_directory("d")
    return local


def failing(code: int, *, after: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a system call that fails, perhaps after it was done."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if after is not None:
            after(*args, **kwargs)
        raise OSError(code, os.strerror(code))

    return call


def is_directory(fd: int) -> bool:
    return stat.S_ISDIR(os.fstat(fd).st_mode)


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


@contextmanager
def limited_to(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes: a full disk that needs no disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- the order in which a put becomes durable -------------------------------------------------------------


def test_a_put_syncs_its_content_links_it_and_syncs_the_directory(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, link = os.fsync, os.link

    def watched_fsync(fd: int) -> None:
        fsync(fd)
        order.append("directory" if is_directory(fd) else f"{os.fstat(fd).st_size} bytes")
        assert (root / "d/1").exists() == is_directory(fd)

    def watched_link(source: str, target: str, **more: int) -> None:
        assert order == ["6 bytes"], "visible before it is durable"
        assert Path(path_of(source, more["src_dir_fd"])).read_bytes() == b"frames"
        link(source, target, **more)
        order.append("link")

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    storage.put_if_absent("d/1", b"frames")

    assert order == ["6 bytes", "link", "directory"]


def test_a_file_written_once_is_synced_before_it_is_named_and_its_directory_after(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync = os.fsync

    def watched_fsync(fd: int) -> None:
        kind = "directory" if is_directory(fd) else "content"
        order.append(f"{kind}, named: {(root / 'd/1').exists()}")
        fsync(fd)

    output = storage.create("d/1")
    output.write(b"frames")
    monkeypatch.setattr(os, "fsync", watched_fsync)
    output.close()

    assert order == ["content, named: False", "directory, named: True"]


def test_every_directory_made_is_synced_into_its_parent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def watched_fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    LocalStorage(root / "made/root").make_directory("a/b")

    assert synced == [os.stat(root / path).st_ino for path in ("", "made", "made/root", "made/root/a")]


def test_a_directory_that_was_removed_and_is_made_again_is_synced_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LocalStorage(root / "root")
    made.make_directory("a/b")
    shutil.rmtree(root / "root/a")
    synced = list[int]()
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), fsync(fd)))
    made.make_directory("a/b")

    assert (root / "root/a/b").is_dir()
    assert synced == [os.stat(root / path).st_ino for path in ("root", "root/a")]


def test_directories_that_come_and_go_are_not_remembered_for_ever(root: Path) -> None:
    (root / paths.ROOT_MARKER).touch()
    _, more = peak_of("tests.support.manydirectories", "remembered", root)
    assert isinstance(more, int)
    assert more < 600 * 50  # each took 1 KB and more


# --- a full or read-only disk -----------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "expected"), [each for each in REFUSED if each[0] != errno.EPERM])
def test_a_link_that_the_disk_refuses_is_certainly_not_put(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    monkeypatch.setattr(os, "link", failing(code))

    with pytest.raises(
        expected, match=f"cannot write d/1 under {root}: .*; (free space|make it writable|mount it writable)"
    ):
        storage.put_if_absent("d/1", b"frames")
    assert leftovers(root) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_filesystem_without_hard_links_is_told_so(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As FAT, SMB, and most clients of buckets that are mounted."""
    monkeypatch.setattr(os, "link", failing(code))
    with pytest.raises(UnsupportedError, match=f"cannot write d/1 under {root}: .* has no hard links.* s3://"):
        storage.put_if_absent("d/1", b"frames")
    assert leftovers(root) == []
    with pytest.raises(UnsupportedError, match="has no hard links"):
        CommitLog(str(root / "log")).create_topic("t")


def test_a_link_that_is_not_permitted_where_nothing_may_be_written_is_no_matter_of_links(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(StorageReadOnlyError, match="make it writable for this user"):
        storage.put_if_absent("d/1", b"frames")


def test_a_link_that_is_refused_is_told_though_its_temporary_file_stays(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has become read-only: nothing can be removed."""
    monkeypatch.setattr(os, "link", failing(errno.EROFS))
    monkeypatch.setattr(os, "unlink", failing(errno.EROFS))
    with pytest.raises(StorageReadOnlyError, match="mount it writable"):
        storage.put_if_absent("d/1", b"frames")


@pytest.mark.parametrize(("code", "expected"), REFUSED)
def test_what_cannot_be_written_is_told_and_leaves_nothing(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    log = storage.open_append("d/1.log")
    monkeypatch.setattr(os, "write", failing(code))
    monkeypatch.setattr(os, "pwritev", failing(code))
    monkeypatch.setattr(os, "ftruncate", failing(code))
    monkeypatch.setattr(os, "posix_fallocate", failing(code))
    calls: list[Callable[[], Any]] = [
        lambda: storage.write_once("d/2", b"table"),
        lambda: log.write_at(0, [b"frames"]),
        lambda: log.truncate(10),
    ]
    for call in calls:
        with pytest.raises(expected, match="cannot write"):
            call()
    with pytest.raises(expected, match=r"cannot reserve 10 bytes for d/1\.log"):
        log.reserve(10)
    log.close()

    assert leftovers(root) == ["1.log"]


@pytest.mark.parametrize(("code", "expected"), REFUSED)
def test_a_directory_that_cannot_be_made_is_told(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    monkeypatch.setattr(os, "mkdir", failing(code))

    for call in (storage.make_directory, storage.create):
        with pytest.raises(expected, match="cannot make directory"):
            call("new/1")


def test_a_root_that_cannot_be_made_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(root)
    monkeypatch.setattr(os, "mkdir", failing(errno.EACCES))
    with pytest.raises(StorageReadOnlyError, match=f"cannot make directory {root.name} under {root.parent}: "):
        LocalStorage(root).make_directory("")


def test_a_disk_that_fills_while_writing_is_told(storage: LocalStorage, root: Path) -> None:
    """No simulation: the kernel refuses the second half of each write."""
    log = storage.open_append("d/1.log")
    calls: list[Callable[[], Any]] = [
        lambda: storage.put_if_absent("d/2", b"x" * 100_000),
        lambda: storage.write_once("d/3", b"x" * 100_000),
        lambda: log.write_at(0, [b"x" * 30_000, b"y" * 70_000]),
        lambda: log.reserve(100_000),
    ]
    with limited_to(50_000):
        for call in calls:
            with pytest.raises(StorageFullError, match="free space and run again"):
                call()
    log.close()

    assert leftovers(root) == ["1.log"]


def test_a_write_that_is_cut_short_goes_on(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: pwrite(fd, b"".join(views)[:5], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))

    log = storage.open_append("d/1.log")
    assert log.write_at(2, [b"abcd", b"", b"efghijkl"]) == 14
    log.close()

    assert storage.read("d/1.log") == b"\0\0abcdefghijkl"


def test_a_write_is_cut_into_small_calls(storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces go together, large ones in parts, and nothing is lost between them."""
    calls: list[list[int]] = []
    pwritev = os.pwritev

    def counted(fd: int, views: list[memoryview], at: int) -> int:
        calls.append([view.nbytes for view in views])
        return pwritev(fd, views, at)

    monkeypatch.setattr(os, "pwritev", counted)
    small, large = [bytes([n % 251]) * 3 for n in range(700)], os.urandom(150_000)
    output = storage.create("d/1")
    output.write(*small, b"", pa.py_buffer(large))
    output.close()

    assert [(len(sizes), sum(sizes)) for sizes in calls] == [(512, 1536), (189, 65_536), (1, 65_536), (1, 19_492)]
    assert (root / "d/1").read_bytes() == b"".join(small) + large


# --- reserving disk ---------------------------------------------------------------------------------------


def test_a_reservation_is_there_on_the_disk(storage: LocalStorage, root: Path) -> None:
    log = storage.open_append("d/1.log")
    log.truncate(2**20)
    assert blocks(root) == 0
    log.reserve(2**21)
    log.close()
    assert blocks(root) == 2**20


def blocks(root: Path) -> int:
    """Return the bytes of disk that d/1.log takes."""
    return (root / "d/1.log").stat().st_blocks * 512


def test_a_reservation_that_fails_half_way_is_given_back(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = storage.open_append("d/1.log")
    log.write_at(0, [b"frames"])

    def full(fd: int, start: int, length: int) -> None:
        os.ftruncate(fd, start + length // 2)
        raise OSError(errno.ENOSPC, "injected")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageFullError, match="free space"):
        log.reserve(2**20)
    log.close()
    assert (root / "d/1.log").read_bytes() == b"frames"


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, None])
def test_where_nothing_can_be_reserved_the_file_is_extended(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """A filesystem without fallocate, and a system without (macOS)."""
    if code is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", failing(code))
    log = storage.open_append("d/1.log")
    log.reserve(2**20)
    log.close()
    assert ((root / "d/1.log").stat().st_size, blocks(root)) == (2**20, 0)


@pytest.mark.parametrize("flags", [os.ST_RDONLY, 0])
def test_where_only_reading_is_possible_a_directory_needs_no_sync(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    """As in an image of squashfs or ISO 9660, which know no fsync; elsewhere the same answer is a failure."""
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_flag=flags))
    with nullcontext() if flags else pytest.raises(SyncFailedError):
        storage.sync_directory("d")


# --- on the way to the disk ------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return where (start, length) of what was sent to the disk before a sync, in that order."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(
        local_files, "_sync_file_range", lambda: lambda _, start, length, __: sent.append((start, length))
    )
    return sent


def test_nothing_is_made_below_a_disk_that_is_not_mounted(root: Path, storage: LocalStorage) -> None:
    """An empty directory is left where it was; what was made there the disk would hide when it is back."""
    for make in (storage.make_directory, storage.create, partial(storage.write_once, data=b"")):
        with pytest.raises(FileNotFoundError, match=paths.ROOT_MARKER):
            make("topics/t/settle/maintained")
    assert not (root / "topics").exists()
    (root / paths.ROOT_MARKER).touch()
    storage.make_directory("topics/t/settle")
    assert (root / "topics/t/settle").is_dir()


def test_a_lock_is_not_taken_below_a_disk_that_is_not_mounted(root: Path, storage: LocalStorage) -> None:
    """Its file would lie below the mount point; when the disk is back, others hold the one that is on it."""
    with pytest.raises(FileNotFoundError), storage.try_lock("topics/t/settle/lock"):
        pass
    assert not (root / "topics").exists()


def test_a_lock_is_not_held_of_a_disk_that_was_taken_away_meanwhile(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.make_directory("0")
    lock = fcntl.flock

    def and_another_disk_is_mounted(fd: int, how: int) -> None:
        lock(fd, how)
        (root / "0").rename(root / "away")
        (root / "0").mkdir()

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", and_another_disk_is_mounted)
        with storage.try_lock("0/lock") as held:
            assert not held
            patched.undo()
            with storage.try_lock("away/lock") as there:
                assert there, "it is not held meanwhile"


@contextmanager
def gone_once_listed(monkeypatch: pytest.MonkeyPatch, gone: Path) -> Iterator[None]:
    """Another process deletes a file between the listing of its directory and the look at it."""
    scan = os.scandir

    @contextmanager
    def listed_before(directory: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(directory) as files:
            found = list(files)
        if any(file.name == gone.name for file in found):
            gone.unlink()
        yield iter(found)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", listed_before)
        yield
    assert not gone.exists()


def of_a_root(root: Path, storage: LocalStorage, *names: str) -> None:
    """Write files of a directory of a root whose marker was seen."""
    storage.write_once(paths.ROOT_MARKER, b"")
    storage.make_directory("d")
    storage.expect_root()
    for name in names:
        (root / "d" / name).write_bytes(b"")
        os.utime(root / "d" / name, (0, 0))


@pytest.mark.parametrize("other", ["its writer", "another sweep"])
def test_a_temporary_file_that_goes_meanwhile_is_no_disk_that_is_away(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """An entry that was put was reported as put at no root, as the trim behind it met another writer's file."""
    of_a_root(root, storage, ".tmp-gone", ".tmp-left", "kept")
    if other == "another sweep":
        found = [".tmp-gone", ".tmp-left"]
        (root / "d" / ".tmp-gone").unlink()
        monkeypatch.setattr(local, "temporary_files", lambda *_: iter(found))
        assert storage.remove_abandoned("d", 1000) == 1
    else:
        with gone_once_listed(monkeypatch, root / "d" / ".tmp-gone"):
            assert storage.remove_abandoned("d", 1000) == 1
    assert [path.name for path in (root / "d").iterdir()] == ["kept"]


def test_a_tree_goes_though_another_process_deletes_of_it_meanwhile(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_root(root, storage, "gone", "left")
    with gone_once_listed(monkeypatch, root / "d" / "gone"):
        storage.delete_tree("d")
    assert not (root / "d").exists()
    storage.delete_tree("d")


def test_ctrl_c_leaves_no_lock_held(root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody comes back to let go of it: no settler would get it before this process ends."""
    storage.make_directory("0")
    lock = fcntl.flock

    def interrupted(fd: int, how: int) -> None:
        lock(fd, how)
        if how & fcntl.LOCK_EX:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            OsLock(root, "0/lock").take()
    with storage.try_lock("0/lock") as held:
        assert held


def test_a_child_closes_no_file_of_its_own_for_a_lock_of_its_parent(storage: LocalStorage) -> None:
    """The number of its copy, which is closed, is soon another file's."""
    storage.make_directory("0")
    with ExitStack() as stack:
        assert stack.enter_context(storage.try_lock("0/lock"))
        assert stack.enter_context(storage.turn("0", 1))
        child = os.fork()
        if not child:
            status = 1
            with suppress(BaseException):
                files = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
                stack.close()
                for file in files:
                    os.fstat(file)
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with LocalStorage(storage.url).try_lock("0/lock") as also:
            assert not also


@pytest.mark.parametrize("unreadable", ["", "0"])
def test_a_root_or_the_directory_of_a_lock_that_may_not_be_read_is_told_as_that(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    """Not as one that may not be written to."""
    storage.make_directory("0")
    opened = os.open

    def refused(path: str | Path, flags: int, *args: int, **more: int) -> int:
        if path_of(path, more.get("dir_fd")) == str(root / unreadable):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", refused)
    act = OsLock(root, "0/lock").take if unreadable else partial(storage.make_directory, "1")
    with pytest.raises(StorageUnreadableError, match=f"{root / unreadable}.*make it readable"):
        act()


def test_a_lock_makes_nothing_below_a_disk_that_goes_meanwhile(
    root: Path, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next process takes what was made there for a log whose disk is mounted."""
    storage.make_directory("0")
    opened = os.open

    def and_the_disk_is_unmounted(path: str | Path, flags: int, *args: int, **more: int) -> int:
        fd = opened(path, flags, *args, **more)
        if flags & os.O_DIRECTORY and not root.with_name("away").exists():
            root.rename(root.with_name("away"))
            root.mkdir()
        return fd

    monkeypatch.setattr(os, "open", and_the_disk_is_unmounted)
    with pytest.raises(FileNotFoundError), storage.try_lock("0/lock"):
        pass
    assert not list(root.iterdir())


def test_what_is_written_is_sent_to_the_disk_once_and_not_in_small_parts(
    storage: LocalStorage, root: Path, sent: list[tuple[int, int]]
) -> None:
    output = storage.create("d/1")
    for size in (2**20, 2**19, 2**19, 100):
        output.write(b"x" * size)
    output.close()
    assert sent == [(0, 2**20), (2**20, 2**20)]


def test_large_appends_are_sent_to_the_disk_and_small_ones_wait_for_the_sync(
    storage: LocalStorage, root: Path, sent: list[tuple[int, int]]
) -> None:
    log = storage.open_append("d/1.log")
    assert log.write_at(0, [b"x" * 2**19, b"y" * 2**19]) == 2**20
    assert log.write_at(2**20, [b"z" * (2**20 - 1)]) == 2**21 - 1
    log.close()
    assert sent == [(0, 2**20)]


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_the_system_takes_the_range(tmp_path: Path) -> None:
    begin = local_files._sync_file_range()
    assert begin is not None
    with (tmp_path / "file").open("wb") as file:
        file.write(b"frames")
        file.flush()
        assert begin(file.fileno(), 0, 6, local_files._SYNC_FILE_RANGE_WRITE) == 0
        assert begin(file.fileno(), -1, 6, local_files._SYNC_FILE_RANGE_WRITE) == -1


def test_a_system_that_has_no_such_call_syncs_at_the_end(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    monkeypatch.setattr(local_files, "_sync_file_range", lambda: None)
    output = storage.create("d/1")
    output.write(b"x" * 2**20)
    assert output.close()[0] == (root / "d/1").stat().st_size == 2**20


# --- failures that leave it open --------------------------------------------------------------------------


def test_content_that_cannot_be_synced_is_certainly_not_put(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))

    with pytest.raises(NotPutError):
        storage.put_if_absent("d/1", b"frames")
    assert leftovers(root) == []


@pytest.mark.parametrize("lost_reply", [False, True])
def test_a_link_that_fails_otherwise_is_ambiguous(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, lost_reply: bool
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EIO, after=os.link if lost_reply else None))

    with pytest.raises(OSError, match="Input/output") as raised:
        storage.put_if_absent("d/1", b"frames")

    assert not isinstance(raised.value, StorageError | FileExistsError | FileNotFoundError)
    assert leftovers(root) == (["1"] if lost_reply else [])


def failing_for_directories(code: int) -> Callable[[int], None]:
    fsync = os.fsync

    def call(fd: int) -> None:
        if is_directory(fd):
            raise OSError(code, os.strerror(code))
        fsync(fd)

    return call


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_directory_that_cannot_be_synced_is_told_as_that(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The put is visible: nobody may take it for "certainly not put"."""
    monkeypatch.setattr(os, "fsync", failing_for_directories(code))
    calls: list[Callable[[], Any]] = [
        lambda: storage.put_if_absent("d/1", b"frames"),
        lambda: storage.write_once("d/2", b"table"),
        lambda: storage.sync_directory("d"),
        lambda: storage.make_directory("new"),
    ]

    for call in calls:
        with pytest.raises(SyncFailedError, match="fsync of the directory of") as raised:
            call()
        assert not isinstance(raised.value, NotPutError)
    assert leftovers(root) == ["1", "2"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_segment_that_cannot_be_synced_is_told_as_that(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log = storage.open_append("d/1.log")
    log.write_at(0, [b"frames"])
    monkeypatch.setattr(os, "fsync", failing(code))

    with pytest.raises(SyncFailedError, match=r"fsync of d/1\.log failed"):
        log.sync()
    log.close()


def test_a_chunk_that_cannot_be_synced_is_told_as_that_and_never_seen(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = storage.create("d/1.chunk")
    output.write(b"frames")
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))

    with pytest.raises(SyncFailedError):
        output.close()
    output.discard()
    assert leftovers(root) == []


# --- what is particular to a directory --------------------------------------------------------------------


def test_a_clock_that_a_test_holds_stamps_the_files(root: Path) -> None:
    clock = ManualClock(1_000_000)
    local = LocalStorage(root, clock=clock)
    local.put_if_absent("1", b"")
    clock.advance(5_000)
    local.write_once("2", b"")

    assert [local.info(name).modified_ms for name in ("1", "2")] == [1_000_000, 1_005_000]


def test_where_appending_is_not_safe_files_are_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "1.log").write_bytes(b"published")
    monkeypatch.setattr(LocalStorage, "can_append", False)
    mapped = LocalStorage(root).map("1.log", 2, 100)
    with open(root / "1.log", "r+b") as file:
        file.write(b"XXXXXXXXX")

    assert mapped.to_pybytes() == b"blished"


# --- where other machines write: what a client of NFS caches (make test-nfs has a real one) -----------------


@pytest.fixture
def mount(root: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
    """A directory that other machines write to, with `d` in it."""
    monkeypatch.setattr(LocalStorage, "can_append", False)
    (root / "d").mkdir()
    return LocalStorage(root)


class Cache:
    """A client that answers for files in `d` from what it knew before, until their directory is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        self.code, self.is_stale, self.made = code, True, False
        self._open, self._unlink = os.open, os.unlink
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "unlink", self.unlink)

    def open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_DIRECTORY and not flags & getattr(
            os, "O_PATH", 0
        ):  # a client does not ask for one passed through
            self.is_stale = False
        self.answer(path)
        return self._open(path, flags, *args, **kwargs)

    def unlink(self, path: Any, **kwargs: Any) -> None:
        self.answer(path_of(path, kwargs.get("dir_fd")))
        self._unlink(path, **kwargs)

    def answer(self, path: Any) -> None:
        if self.is_stale and os.fspath(path).endswith("d/1"):
            raise OSError(self.code, os.strerror(self.code), os.fspath(path))


LOOKS: dict[str, Callable[[LocalStorage], object]] = {
    "read": lambda mount: mount.read("d/1"),
    "fetch": lambda mount: mount.fetch("d/1", 10)[0],
    "map": lambda mount: mount.map("d/1", 0, 10).to_pybytes(),
    "info": lambda mount: b"x" * mount.info("d/1").size,
}


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE], ids=["no such name", "another file"])
@pytest.mark.parametrize("look", LOOKS)
def test_what_a_client_has_cached_is_looked_for_again(
    mount: LocalStorage, root: Path, look: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "d/1").write_bytes(b"xxxxx")
    Cache(monkeypatch, code)

    assert LOOKS[look](mount) == b"xxxxx"


def test_a_name_that_a_client_has_cached_is_not_looked_at(
    mount: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of that name may have been deleted on another machine; who opens it asks the server."""
    (root / "d/1").write_bytes(b"xxxxx")
    before = mount.info("d/1")
    monkeypatch.setattr(os, "stat", failing(errno.EIO))

    assert mount.info("d/1") == before


@pytest.mark.parametrize("look", LOOKS)
def test_a_file_that_is_deleted_while_it_is_read_is_not_there(
    mount: LocalStorage, root: Path, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "d/1").write_bytes(b"xxxxx")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat" if look != "fetch" else "read", failing(errno.ESTALE))
        with pytest.raises(FileNotFoundError):
            LOOKS[look](mount)


def test_a_directory_that_a_client_does_not_know_is_looked_for_from_the_root_down(
    mount: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "x/y").mkdir(parents=True)
    (root / "x/y/1").write_bytes(b"entry")
    known, real = {str(root)}, os.open

    def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if os.path.dirname(path) not in known and str(path) != str(root):
            raise FileNotFoundError(errno.ENOENT, "cached", str(path))
        if flags & os.O_DIRECTORY:
            known.add(str(path))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", opened)
    assert mount.read("x/y/1") == b"entry"


def test_a_file_is_deleted_that_a_client_does_not_know(
    mount: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "d/1").write_bytes(b"")
    Cache(monkeypatch, errno.ENOENT)

    mount.delete("d/1")
    mount.delete("d/1")
    assert leftovers(root) == []


def test_what_is_deleted_while_it_is_open_has_no_name(mount: LocalStorage, root: Path) -> None:
    for name in (".nfs000000000002047c00000002", ".nfs-is-my-topic", "1"):
        (root / "d" / name).touch()

    assert mount.names("d") == [".nfs-is-my-topic", "1"]


def test_a_tree_goes_but_for_what_is_open(mount: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1", "2"):
        (root / "d" / name).touch()
    real = os.unlink

    def unlink(path: Any, **kwargs: Any) -> None:
        if path == "1":
            raise OSError(errno.EBUSY, "in use")
        real(path, **kwargs)

    monkeypatch.setattr(os, "unlink", unlink)
    mount.delete_tree("d")
    assert leftovers(root) == ["1"]

    monkeypatch.setattr(os, "unlink", failing(errno.EIO))
    with pytest.raises(StorageError, match="delete d"):
        mount.delete_tree("d")


@pytest.mark.parametrize("url", ["{root}", "file://{root}", "file:{root}"])
def test_opens_a_directory_by_path_or_url(root: Path, url: str) -> None:
    opened = open_storage(url.format(root=root))

    assert isinstance(opened, LocalStorage)
    assert opened.url == str(root)


def test_where_the_system_has_no_locks_none_is_made_up(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock file that merely exists would outlive its holder, and be broken by somebody's patience."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOSYS))

    with pytest.raises(StorageError, match="cannot lock d/lock"), storage.try_lock("d/lock"):
        pass


def test_a_relative_root_stays_where_it_was_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    opened = open_storage("log")
    monkeypatch.chdir("/")

    assert opened.url == str(root / "log")


def test_opening_touches_nothing(root: Path) -> None:
    open_storage(str(root / "new"))

    assert not (root / "new").exists()


@pytest.mark.parametrize("url", ["hdfs://name/x", "sftp://host/x", "nosuchprotocol://x"])
def test_refuses_what_is_not_known_to_be_safe(url: str) -> None:
    """In one line, whether or not the library for it is installed."""
    with pytest.raises(UnsupportedError, match=f"is not supported by this version .*{url}.*: use s3://"):
        open_storage(url)


@pytest.mark.parametrize("address", ["localhost:9092", "kafka-1.example:9092,kafka-2.example:9092"])
def test_the_address_of_a_broker_is_no_directory(root: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.chdir(root)
    with pytest.raises(UsageError, match=f"'{address}' is the address of a Kafka broker"):
        open_storage(address)
    assert open_storage(f"./{address}").url == str(root / address)
    (root / address).mkdir()
    assert open_storage(address).url == str(root / address)


@pytest.mark.parametrize(
    "root",
    [
        *[None, b"/data/log", Path("s3://b/p"), "s3:/b/p", "~/log", "file://host/p", "file:log"],
        *["a,s3:/b", "./a,~/log", "memory://a,~/log", "./a,file://host/p"],
    ],
)
def test_a_root_that_would_name_another_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for opened in (CommitLog, Consumer, Producer, partial(open_peer, storage_options=None, peer_options=None)):
        with pytest.raises(UsageError, match=r"write |a root is a path or a URL"):
            opened(root)
    assert list(tmp_path.iterdir()) == []


def test_a_path_object_and_the_url_it_makes_of_itself_are_one_root(tmp_path: Path) -> None:
    place = tmp_path / "a b"
    urls = [place, place.as_uri(), f"file://localhost{place}"]
    assert [open_storage(each).url for each in urls] == [str(place)] * 3


def test_each_root_of_a_list_is_checked_though_the_first_answers(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("t", 1)
    for other in ("s3:/b", "~/log", "file://host/p"):
        with pytest.raises(UsageError, match=f"'{other}'.* write "):
            open_storage(f"{tmp_path},{other}")


def test_a_root_must_be_named() -> None:
    with pytest.raises(UsageError, match="no root given"):
        open_storage("")


def test_the_umask_decides_who_may_write_any_file(tmp_path: Path) -> None:
    """Several users of one group write one root (docs/how-to/access.md): each must be able to append to another's segments."""
    before = os.umask(0o007)
    try:
        log = CommitLog(str(tmp_path / "log"))
        log.create_topic("t", 2, {"settle.bytes": 1})
        append(log.root.topic("t"), batch_of([b"a", b"b", b"c"]))
        log.topic("t").maintain()
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "log").rglob("*")}
    assert any(path.suffix == ".log" for path in modes)
    assert {
        path: oct(mode) for path, mode in modes.items() if mode & 0o070 != (0o070 if path.is_dir() else 0o060)
    } == {}


def test_a_directory_that_may_not_be_read_is_told_as_that(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put syncs it: there is nothing to try again, and nothing of the put is there."""
    opens = os.open

    def refused(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opens(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refused)
    told = rf"cannot read the directory {root}/d, .*: Permission denied; make it readable for this user"
    for act in (lambda: storage.put_if_absent("d/x", b"x"), lambda: storage.sync_directory("d")):
        with pytest.raises(StorageUnreadableError, match=told):
            act()
    assert leftovers(root) == []
