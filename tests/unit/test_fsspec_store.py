"""The door to fsspec's filesystems: which are taken, what is made of what they say, and of what goes wrong."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import (
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnreadableError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.storage import NotPutError, Storage, open_storage, race
from pyspark_commitlog.storage.base import FileInfo
from pyspark_commitlog.storage.fsspec.fsspec_files import Instances
from pyspark_commitlog.storage.fsspec.fsspec_info import file_info
from pyspark_commitlog.storage.fsspec.fsspec_options import Filesystem, creates_exclusively
from pyspark_commitlog.storage.fsspec.fsspec_store import FsspecStorage
from pyspark_commitlog.storage.fsspec.fsspec_trial import fault_of_files
from pyspark_commitlog.storage.write_once import CLOCK
from pyspark_commitlog.testing.manual_clock import ManualClock
from tests.support.filesystems import Failing, Modeless, Plain, Shelf, open_shelf
from tests.support.name_node import NameNode

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
MOMENT_MS = 1767323045678


# --- what a filesystem says of a file ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "time",
    [
        {"LastModified": MOMENT},
        {"last_modified": MOMENT.replace(tzinfo=None)},
        {"modified": MOMENT.astimezone(timezone(timedelta(hours=9)))},
        {"mtime": MOMENT_MS / 1000},
        {"modificationTime": MOMENT_MS},
        {"updated": "2026-01-02T03:04:05.678Z"},
        {"mtime": None, "created": MOMENT},
    ],
)
def test_a_time_is_found_by_any_of_its_names_and_forms(time: dict[str, Any]) -> None:
    assert file_info({"size": 3, "etag": "e", **time}, "x://y") == FileInfo(3, MOMENT_MS, f"e@{MOMENT_MS}")


def test_a_time_of_http_is_read() -> None:
    found = file_info({"size": 3, "etag": "e", "LastModified": "Fri, 02 Jan 2026 03:04:05 GMT"}, "x://y")
    assert found.modified_ms == MOMENT_MS // 1000 * 1000


def test_a_version_is_enough_and_an_etag_takes_the_time() -> None:
    found = {"size": 3, "mtime": MOMENT, "ETag": "e", "VersionId": "v"}
    assert file_info(found, "x://y").identity == "v"
    assert file_info({**found, "VersionId": "null"}, "x://y").identity == f"e@{MOMENT_MS}"
    assert file_info({**found, "VersionId": None, "generation": 7}, "x://y").identity == "7"


@pytest.mark.parametrize(
    "lacking", [{"mtime": MOMENT}, {"etag": "e"}, {"etag": "", "mtime": MOMENT}, {"generation": 7}]
)
def test_what_tells_no_files_apart_is_refused(lacking: dict[str, Any]) -> None:
    with pytest.raises(
        UnsupportedError, match=r"x://y can't hold a commit log: two files .* distinguished.*Instead use s3://"
    ):
        file_info({"size": 3, **lacking}, "x://y")


# --- which filesystems are taken --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("hdfs://name/x", r"libhdfs.* webhdfs://NAMENODE:9870/PATH"),
        ("sftp://host/x", "seen there before its content is whole"),
        ("smb://host/x", "seen there before its content is whole"),
        ("https://host/x", "promises nothing"),
        ("ftp://host/x", r"FTPFileSystem: it looks whether a name is taken and writes then"),
        ("shelf-plain:///x", r"Plain: it looks whether a name is taken and writes then"),
        ("shelf-modeless:///x", r"Modeless: it looks whether"),
        ("dir::shelf:///x", "Chained URLs are not taken"),
        ("simplecache::s3://b/x", "Chained URLs are not taken"),
        ("nosuch://x", "fsspec says: Protocol not known: nosuch"),
    ],
)
def test_what_is_known_to_hold_no_log_is_refused_by_name(url: str, why: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf":// is not supported by this version \(root '{url}'\): use s3://.*{why}"
    ):
        open_storage(url)


def test_without_its_client_hdfs_says_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(protocol: str) -> type:
        raise ImportError(f'{protocol} access requires "requests" to be installed')

    monkeypatch.setattr("fsspec.get_filesystem_class", missing)
    with pytest.raises(UnsupportedError, match=r"'webhdfs://host:9870/x'.*pip install 'pyspark-commitlog\[hdfs\]'"):
        open_storage("webhdfs://user@host:9870/x")


def test_a_put_of_its_own_that_knows_the_mode_is_asked_for() -> None:
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    class Asynchronous(AsyncFileSystem):  # type: ignore[misc]
        async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None: ...

    kinds = [Shelf, Asynchronous, AbstractFileSystem, AsyncFileSystem, Plain, Modeless]
    assert [creates_exclusively(kind) for kind in kinds] == [True, True, False, False, False, False]


def test_a_url_holds_no_password_and_options_are_shown_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="webhdfs:// URLs hold no passwords") as raised:
        open_storage("webhdfs://user:s3cret@host:9870/x")
    assert "s3cret" not in str(raised.value)
    with pytest.raises(UnsupportedError, match=r"root 'simplecache::ftp://host/x'") as refused:
        open_storage("simplecache::ftp://user:s3cret@host/x")
    assert "s3cret" not in str(refused.value)
    storage = open_storage(f"shelf://{tmp_path}", {"color": "s3cret", "nosuch": "s3cret"})
    assert "s3cret" not in repr(storage) + repr(vars(storage)) + storage.client
    made = Filesystem("webhdfs://host:1/x", {"port": "s3cret", "token": "s3cret", "user": "u"})
    with pytest.raises(UsageError, match="with the storage options port, token, user") as raised:
        made()
    assert "s3cret" not in str(raised.value)


def test_what_a_filesystem_says_of_a_value_shows_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shelf, "__init__", lambda self, color, **kwargs: int(color))
    with pytest.raises(UsageError, match="color: invalid literal for int") as raised:
        Filesystem(f"shelf://{tmp_path}", {"color": "s3cret"})()
    assert "s3cret" not in str(raised.value)


def test_options_go_to_the_filesystem_and_words_are_switches(tmp_path: Path) -> None:
    made = Filesystem(f"shelf://{tmp_path}", {"color": "red", "switch": "true"})
    assert (made().color, made().switch) == ("red", True)
    assert made() is not made(), "no instance of another's"
    assert not made().dircache.use_listings_cache


def test_the_client_names_filesystem_host_and_version() -> None:
    client = open_storage("webhdfs://user@namenode:9870/x", {"user": "u"}).client
    assert client.startswith("fsspec filesystem webhdfs at namenode:9870, WebHDFS of fsspec 20")


# --- instances ----------------------------------------------------------------------------------------------


def test_an_instance_is_used_by_one_at_a_time_and_again() -> None:
    instances = Instances(object)
    with instances.borrow() as first, instances.borrow() as second:
        assert first is not second
    with instances.borrow() as again:
        assert again in (first, second)
    with pytest.raises(FileNotFoundError), instances.borrow() as kept:
        raise FileNotFoundError
    with pytest.raises(OSError, match="reset"), instances.borrow() as failed:
        raise OSError("reset")
    with instances.borrow() as another:
        assert failed is kept
        assert another is not failed


def test_an_asynchronous_instance_is_shared() -> None:
    class Asynchronous:
        async_impl = True

    instances = Instances(Asynchronous)
    with instances.borrow() as first, instances.borrow() as second:
        assert first is second
    with pytest.raises(OSError, match="reset"), instances.borrow():
        raise OSError("reset")
    with instances.borrow() as another:
        assert another is not first


def _instance_of(storage: FsspecStorage, line: Any) -> None:
    """Say which instance is used, in a forked child, while the parent holds what its own threads held."""
    with storage._using("read x") as instance:
        line.send((id(instance), storage.read("a")))


def test_a_forked_child_has_instances_of_its_own(tmp_path: Path) -> None:
    storage = open_shelf(f"shelf://{tmp_path}/root")
    storage.write_once("a", b"1")
    with storage._using("read x") as instance:
        mine = id(instance)
    ours, theirs = multiprocessing.Pipe()
    with storage._time.value._lock:
        child = multiprocessing.get_context("fork").Process(target=_instance_of, args=(storage, theirs))
        child.start()
        answered = ours.poll(20)
        if not answered:
            child.kill()
    child.join()
    assert answered, "the child hangs"
    used, data = ours.recv()
    assert (used != mine, data) == (True, b"1")


def test_a_storage_is_pickled_without_its_instances(tmp_path: Path) -> None:
    storage = open_shelf(f"shelf://{tmp_path}/root", {"color": "red"})
    storage.write_once("a", b"1")
    again = pickle.loads(pickle.dumps(storage))
    assert not again._instances._free.value
    assert again.read("a") == b"1"
    with again._using("read a") as instance:
        assert instance.color == "red"


def test_a_peer_of_the_same_protocol_has_the_same_options(tmp_path: Path) -> None:
    storage = open_shelf(f"shelf://{tmp_path}/root", {"color": "red"})
    peer, local = storage.peer(f"shelf://{tmp_path}/peer"), storage.peer(str(tmp_path / "local"))
    assert isinstance(peer, FsspecStorage)
    with peer._using("read x") as instance:
        assert instance.color == "red"
    assert local.can_append


# --- what goes wrong --------------------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    monkeypatch.setattr(Failing, "errors", [])
    return FsspecStorage(f"shelf-failing://{tmp_path}/root", clock=ManualClock())


@pytest.mark.parametrize(
    "error", [TimeoutError("late"), RuntimeError("odd"), PermissionError("no"), FileNotFoundError("d")]
)
def test_a_failed_put_is_ambiguous_and_never_repeated(
    failing: FsspecStorage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The library may have sent it before, and only the second answer be a refusal."""
    monkeypatch.setattr(Failing, "after", True)
    Failing.errors[:] = [error]
    with pytest.raises(StorageError, match="cannot write a") as raised:
        failing.put_if_absent("a", b"1")
    assert type(raised.value) is StorageError
    assert not isinstance(raised.value, NotPutError)
    assert failing.read("a") == b"1", "it had landed"


def test_what_may_be_repeated_is_and_ends(failing: FsspecStorage) -> None:
    failing.write_once("a", b"1")
    Failing.errors[:] = [TimeoutError("late")] * 4
    assert failing.read("a") == b"1"
    Failing.errors[:] = [TimeoutError("late")] * 9
    with pytest.raises(StorageError, match=r"cannot read a: TimeoutError: late"):
        failing.info("a")
    assert len(Failing.errors) == 4
    Failing.errors[:] = [PermissionError("no")] * 2
    with pytest.raises(StorageUnreadableError, match=r"refused: no\. Check the credentials"):
        failing.info("a")
    assert len(Failing.errors) == 1


def test_a_file_that_came_short_is_no_file(failing: FsspecStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    failing.write_once("a", b"12345")
    monkeypatch.setattr(Failing, "cat_file", lambda self, path, start, end: b"123")
    with pytest.raises(StorageError, match="3 bytes of 5 came"):
        failing.read("a")
    with pytest.raises(StorageError, match="it changed 5 times"):
        failing.fetch("a", 10)


def test_what_is_fetched_is_of_the_file_that_is_named(failing: FsspecStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    failing.write_once("a", b"old")
    real, left = Failing.cat_file, [b"new", b"end"]

    def replaced(self: Failing, path: str, start: int, end: int) -> bytes:
        data = real(self, path, start, end)
        if left:
            open_shelf(failing.url).write_once("a", left.pop(0))
        return data

    monkeypatch.setattr(Failing, "cat_file", replaced)
    assert failing.fetch("a", 10) == (b"end", failing.info("a"))


def test_storages_time_is_asked_and_what_a_killed_process_left_goes(failing: FsspecStorage, tmp_path: Path) -> None:
    import os

    failing.write_once(f"{CLOCK}/left", b"")
    os.utime(tmp_path / "root" / CLOCK / "left", (1, 1))
    assert failing.now_ms() > MOMENT_MS
    assert failing.names(CLOCK) == []


def test_a_root_is_not_deleted_whole(failing: FsspecStorage) -> None:
    with pytest.raises(UsageError, match="a whole root is not deleted"):
        failing.delete_tree("")


# --- what is tried before a root is made -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("flaw", "found"),
    [
        (
            "looking",
            r"\d+ of 16 puts of one name at once were taken, so that commits would be lost.* for shelf-looking:// ",
        ),
        ("deaf", r"\d+ of 16 puts of one name at once were taken.*The filesystem that fsspec has for shelf-deaf://"),
        ("half", r"seen with \d+ while it was put.* for shelf-half:// does not do: use s3://"),
        (
            "same",
            r"two files that were put at one path one after the other can't be distinguished.* for shelf-same:// ",
        ),
        ("restless", "a file that nobody touches seems to be another one a moment later"),
        ("bare", r"can't be distinguished by what its filesystem says of one \(mtime, name, size, type\)"),
    ],
    ids=["looking", "deaf", "half", "same", "restless", "bare"],
)
def test_a_filesystem_that_is_not_fit_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flaw: str, found: str
) -> None:
    monkeypatch.setattr(race, "_seen", set())
    url = f"shelf-{flaw}://{tmp_path}/root"
    with pytest.raises(UnsupportedError, match=rf"{url} can't hold a commit log: .*{found}"):
        CommitLog(url).create_topic("t")
    left = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".tmp-")]
    assert left == [], "nothing is left of it"


def test_a_fit_one_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(race, "_seen", set())
    monkeypatch.setattr(FsspecStorage, "fault", lambda self, home: tried.append(home))
    for topic in ("t", "u"):
        CommitLog(f"shelf://{tmp_path}/root").create_topic(topic)
    assert len(tried) == 1


def test_the_trial_says_when_it_cannot_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_shelf(f"shelf://{tmp_path}/root")
    monkeypatch.setattr(storage, "put_if_absent", lambda path, data: (_ for _ in ()).throw(StorageError("down")))
    with pytest.raises(StorageError, match="down"):
        fault_of_files(storage, "probes/x")


# --- WebHDFS ----------------------------------------------------------------------------------------------


@pytest.fixture
def node() -> Iterator[NameNode]:
    node = NameNode()
    yield node
    node.stop()


@pytest.fixture
def hdfs(node: NameNode) -> Storage:
    storage = open_storage(f"{node.url}/root", {"user": "u"})
    storage.make_directory("d")
    node.asked.clear()
    return storage


def fail_once(node: NameNode, operation: str, moment: str, error: Exception, path: str = "") -> None:
    """Let the next such request fail."""

    def fault(asked: str, at: str, when: str) -> None:
        if (asked, when) == (operation, moment) and path in at:
            node.faults.remove(fault)
            raise error

    node.faults.append(fault)


def refusal(kind: str) -> Exception:
    from tests.support.name_node import _RefusedError

    return _RefusedError(kind, "because")


def test_a_put_is_a_file_written_and_one_rename(node: NameNode, hdfs: Storage) -> None:
    hdfs.put_if_absent("d/1", b"1")
    assert [operation for operation, _ in node.asked] == ["CREATE", "RENAME"]
    with pytest.raises(FileExistsError):
        hdfs.put_if_absent("d/1", b"2")
    with pytest.raises(FileExistsError):
        hdfs.put_if_absent("d", b"2")
    assert sorted(node.files) == ["/", "/root", "/root/d", "/root/d/1"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_put_without_an_answer_to_its_rename_is_ambiguous(node: NameNode, hdfs: Storage, moment: str) -> None:
    fail_once(node, "RENAME", moment, ConnectionError())
    with pytest.raises(StorageError, match="cannot write d/1") as raised:
        hdfs.put_if_absent("d/1", b"1")
    assert not isinstance(raised.value, NotPutError | FileExistsError)
    assert [operation for operation, _ in node.asked].count("RENAME") == 1
    assert sorted(node.files)[3:] == (["/root/d/1"] if moment == "after" else [])


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("NSQuotaExceededException", StorageFullError),
        ("AccessControlException", StorageReadOnlyError),
        ("SafeModeException", NotPutError),
    ],
)
def test_what_was_not_renamed_is_certainly_not_put(
    node: NameNode, hdfs: Storage, kind: str, error: type[Exception]
) -> None:
    fail_once(node, "CREATE", "before", refusal(kind))
    with pytest.raises(error, match="because"):
        hdfs.put_if_absent("d/1", b"1")
    fail_once(node, "CREATE", "after", ConnectionError())
    with pytest.raises(NotPutError):
        hdfs.put_if_absent("d/1", b"1")
    assert sorted(node.files) == ["/", "/root", "/root/d"]


def test_a_rename_whose_file_is_gone_is_no_answer(node: NameNode, hdfs: Storage) -> None:
    """It may have been renamed before, by what sent the request twice."""
    fail_once(node, "RENAME", "before", refusal("FileNotFoundException"))
    with pytest.raises(StorageError, match="no such directory") as raised:
        hdfs.put_if_absent("d/1", b"1")
    assert not isinstance(raised.value, NotPutError)


def test_an_error_of_a_read_is_no_content(node: NameNode, hdfs: Storage) -> None:
    hdfs.write_once("d/1", b"12345")
    fail_once(node, "OPEN", "before", refusal("IOException"))
    assert hdfs.read("d/1") == b"12345", "it was asked for again"
    fail_once(node, "OPEN", "before", refusal("AccessControlException"))
    with pytest.raises(StorageUnreadableError, match="AccessControlException: because"):
        hdfs.read("d/1")


def test_a_request_ends(hdfs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    given = list[object]()
    real = requests.Session.request

    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        given.append(kwargs.get("timeout"))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(requests.Session, "request", request)
    hdfs.put_if_absent("d/1", b"1")
    assert given == [(5, 60)] * 3


def test_a_server_without_options_of_a_rename_or_numbers_of_files_is_refused(node: NameNode) -> None:
    node.knows_options = False
    with pytest.raises(UnsupportedError, match=r"renames without options.*HttpFS"):
        CommitLog(f"{node.url}/a", {"user": "u"}).create_topic("t")
    node.knows_options, node.shows_numbers = True, False
    with pytest.raises(UnsupportedError, match=r"shows no number of a file \(fileId\)"):
        CommitLog(f"{node.url}/b", {"user": "u"}).create_topic("t")


def test_two_files_of_one_moment_are_told_apart(node: NameNode, hdfs: Storage) -> None:
    """A file's time is that of its temporary one: a writer that slept between the two is not told by it."""
    infos = []
    for _ in range(2):
        hdfs.put_if_absent("d/1", b"the same")
        node.files["/root/d/1"].modified_ms = 1_700_000_000_000
        infos.append(hdfs.info("d/1"))
        hdfs.delete("d/1")
    assert infos[0].modified_ms == infos[1].modified_ms
    assert infos[0].identity != infos[1].identity
