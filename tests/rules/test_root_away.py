"""A root that is away for a moment is not taken for one without topics: docs/explanation/design/absent-roots.md."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import Consumer, Producer
from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.consumer import poller
from pyspark_commitlog.errors import RootNotAvailableError, RootNotFoundError, StorageError, UnknownTopicError
from pyspark_commitlog.format import paths
from pyspark_commitlog.spark.source import DefaultSource
from pyspark_commitlog.storage import NotPutError
from pyspark_commitlog.storage.local import local
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.nemesis import disks
from tests.spark.driver import Checkpoint, Driver
from tests.support.commands import COMMAND, cat
from tests.support.consumers import DEFAULTS, values
from tests.support.records import append, batch_of
from tests.support.world import World

EARLIEST = {"startingOffsets": "earliest"}
_ENTRY = "topics/t/journal/00000000000000000001.json"


class Disk:
    """The disk of a root, which goes and comes back; `mount_point`: an empty directory is left where it was."""

    def __init__(self, root: Path, mount_point: bool = False) -> None:
        self.root, self._mount_point, self._aside = root, mount_point, root.with_name("aside")

    def goes(self) -> None:
        """Take it away."""
        self.root.rename(self._aside)
        if self._mount_point:
            self.root.mkdir()

    def comes(self) -> None:
        """Bring it back: nothing was written below its mount point meanwhile."""
        if self._mount_point:
            self.root.rmdir()
        self._aside.rename(self.root)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Have it away."""
        self.goes()
        try:
            yield
        finally:
            self.comes()

    def away_for(self, seconds: float) -> Timer:
        """Take it away, and have another thread bring it back."""
        self.goes()
        timer = Timer(seconds, self.comes)
        timer.start()
        return timer


class MountedDisk(Disk):
    """A file system that is unmounted while processes have files open on it, and mounted again."""

    def __init__(self, root: Path, mount_point: Path) -> None:
        super().__init__(root)
        self._place = mount_point
        self._mounted = disks.Disk(mount_point.parent, mount_point.name)

    def goes(self) -> None:
        self._mounted.take_away()

    def comes(self) -> None:
        below = list(self._place.iterdir())
        self._mounted.give_back()
        assert below == [], "it would be hidden now"


#: Where a disk may be mounted, these tests run again on one: see the last of them.
_DISKS: dict[str, Callable[[Path], Disk]] = {
    "moved": Disk,
    "unmounted": lambda root: Disk(root, mount_point=True),
}
_MOUNTED: dict[str, Callable[[Path], Disk]] = {
    "mounted at the root": lambda root: MountedDisk(root, root),
    "mounted above it": lambda root: MountedDisk(root, root.parent),
}


@pytest.fixture(params=_MOUNTED if disks.INSIDE in os.environ else _DISKS)
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Disk:
    """The disk of a root with a topic of three records."""
    world = World(tmp_path / "disk/root")
    world.path.parent.mkdir()
    disk = {**_DISKS, **_MOUNTED}[request.param](world.path)
    append(world.create(), batch_of([b"a", b"b", b"c"]))
    return disk


_LOOKS: dict[str, Callable[[LocalStorage], object]] = {
    "read": lambda storage: storage.read(_ENTRY),
    "fetch": lambda storage: storage.fetch(_ENTRY, 10),
    "map": lambda storage: storage.map(_ENTRY, 0, 10),
    "info": lambda storage: storage.info(_ENTRY),
    "exists": lambda storage: storage.exists(_ENTRY),
    "marker": lambda storage: storage.exists(paths.ROOT_MARKER),
    "names": lambda storage: storage.names("topics"),
    "names of the root": lambda storage: storage.names(""),
    "sync_file": lambda storage: storage.sync_file(_ENTRY),
    "sync_directory": lambda storage: storage.sync_directory("topics"),
}
_CHANGES: dict[str, Callable[[LocalStorage], object]] = {
    "create": lambda storage: storage.create("topics/t/x"),
    "make_directory": lambda storage: storage.make_directory("topics/t/x"),
    "probes": lambda storage: storage.write_once("probes/x.json", b"{}"),
    "marker": lambda storage: storage.write_once(paths.ROOT_MARKER, b"{}"),
    "open_append": lambda storage: storage.open_append("topics/t/x.log"),
    "delete": lambda storage: storage.delete(_ENTRY),
    "delete_tree": lambda storage: storage.delete_tree("topics/t"),
    "remove_abandoned": lambda storage: storage.remove_abandoned("topics/t/journal", 10**15),
    "try_lock": lambda storage: storage.try_lock("topics/t/lock").__enter__(),
}


def opened(disk: Disk) -> LocalStorage:
    """Return a door to the root, which was seen there."""
    log = CommitLog(str(disk.root))
    log.topics()
    assert isinstance(log.root.storage, LocalStorage)
    return log.root.storage


@pytest.mark.parametrize("operation", _LOOKS)
def test_nothing_is_absent_of_a_root_that_is_away(disk: Disk, operation: str) -> None:
    storage, look = opened(disk), _LOOKS[operation]
    there = look(storage)
    with disk.away(), pytest.raises(RootNotAvailableError, match=r"there is no commit log at .*: mount it and start"):
        look(storage)
    assert look(storage) == there


@pytest.mark.parametrize("operation", _CHANGES)
def test_nothing_is_changed_below_the_mount_point_of_a_root_that_is_away(disk: Disk, operation: str) -> None:
    storage = opened(disk)
    with disk.away():
        with pytest.raises(RootNotAvailableError):
            _CHANGES[operation](storage)
        assert not disk.root.exists() or not list(disk.root.iterdir())


def test_a_root_that_is_away_is_missed_though_its_directory_was_made_before(disk: Disk) -> None:
    storage = opened(disk)
    storage.make_directory("")
    with disk.away():
        with pytest.raises(RootNotAvailableError):
            storage.make_directory("")
        assert not disk.root.exists() or not list(disk.root.iterdir())


def test_a_put_to_a_root_that_is_away_is_certainly_not_put(disk: Disk) -> None:
    storage = opened(disk)
    with disk.away(), pytest.raises(NotPutError, match=r"there is no commit log at .* now"):
        storage.put_if_absent(_ENTRY, b"x")


def test_a_root_that_comes_back_between_a_look_and_its_marker_lacks_nothing(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker alone proves nothing of a look that was before it: it is taken again below the same descriptor."""
    storage = opened(disk)
    for name, look in (("listdir", _LOOKS["names"]), ("stat", _LOOKS["exists"]), ("open", _LOOKS["read"])):
        there, act = look(storage), getattr(os, name)

        def and_then_it_comes_back(*args: Any, _act: Any = act, _name: str = name, **more: Any) -> Any:
            monkeypatch.setattr(os, _name, _act)
            try:
                return _act(*args, **more)
            finally:
                disk.comes()

        disk.goes()
        monkeypatch.setattr(os, name, and_then_it_comes_back)
        assert look(storage) == there, name


def test_what_a_root_lacks_that_is_there_is_absent(disk: Disk) -> None:
    storage = opened(disk)
    assert storage.names("topics/none") == []
    assert not storage.exists("topics/none")
    with pytest.raises(FileNotFoundError):
        storage.read("topics/none")
    with pytest.raises(FileNotFoundError):
        storage.sync_directory("topics/none")
    storage.delete("topics/none")
    storage.delete_tree("topics/none")


# --- what users see -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"producer_id": "p"}], ids=["plain", "with an id"])
def test_a_producer_tries_again_until_the_root_is_back(disk: Disk, settings: dict[str, Any]) -> None:
    with Producer(str(disk.root), **settings) as producer:
        producer.send("t", b"d").result(30)
        timer = disk.away_for(0.3)
        sent = [producer.send("t", b"%d" % number) for number in range(20)]
        assert [future.result(30).offset for future in sent] == list(range(4, 24))
        timer.join()
        assert producer.send("t", b"e").result(30).offset == 24


def test_a_first_send_waits_for_a_root_that_is_away(disk: Disk) -> None:
    CommitLog(str(disk.root)).create_topic("u")
    with Producer(str(disk.root)) as producer:
        producer.send("t", b"d").result(30)
        timer = disk.away_for(0.3)
        assert producer.send("u", b"e").result(30).offset == 0
        timer.join()
        with pytest.raises(UnknownTopicError, match="unknown topic 'none'"):
            producer.send("none", b"f")


def test_a_first_send_says_that_the_root_stays_away(disk: Disk) -> None:
    CommitLog(str(disk.root)).create_topic("u")
    with Producer(str(disk.root), max_block_ms=250) as producer:
        producer.send("t", b"d").result(30)
        with disk.away(), pytest.raises(RootNotAvailableError, match="there is no commit log at"):
            producer.send("u", b"e")
        assert producer.send("u", b"e").result(30).offset == 0


@pytest.mark.parametrize("settings", [{}, {"group_id": "g"}], ids=["plain", "of a group"])
def test_a_consumer_waits_for_a_root_that_is_away(
    disk: Disk, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(str(disk.root), "t", **{**DEFAULTS, **settings}) as consumer:
        assert values(consumer.poll(30)) == [b"a", b"b", b"c"]
        with disk.away():
            assert consumer.poll(0.0) == consumer.poll(0.3) == []
        append(TopicLog(LocalStorage(disk.root), "t"), batch_of([b"d"]))
        assert values(consumer.poll(30)) == [b"d"]
    assert "the consumer waits: there is no commit log at" in caplog.text
    assert "deleted" not in caplog.text


def test_a_consumer_says_that_its_root_stays_away(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "_AWAY_SECONDS", 0.0)
    with Consumer(str(disk.root), "t", **DEFAULTS) as consumer:
        assert len(consumer.poll(30)) == 3
        with disk.away(), pytest.raises(RootNotAvailableError, match="there is no commit log at"):
            consumer.poll(0.0)
        assert consumer.poll(0.0) == []


def test_a_loop_that_ends_without_records_does_not_end_as_the_root_is_away(disk: Disk) -> None:
    with Consumer(str(disk.root), "t", consumer_timeout_ms=10, **DEFAULTS) as consumer:
        assert values(consumer) == [b"a", b"b", b"c"]
        with disk.away(), pytest.raises(RootNotAvailableError, match="there is no commit log at"):
            list(consumer)


@pytest.mark.parametrize("act", ["topics", "topic", "maintain", "groups"])
def test_a_log_that_is_open_says_that_its_root_is_away(disk: Disk, act: str) -> None:
    log = CommitLog(str(disk.root))
    acts: dict[str, Callable[[], object]] = {
        "topics": log.topics,
        "topic": lambda: log.topic("t").describe(),
        "maintain": lambda: log.topic("t").maintain(),
        "groups": log.groups.list,
    }
    acts[act]()
    with disk.away(), pytest.raises(RootNotAvailableError, match="there is no commit log at"):
        acts[act]()
    acts[act]()


def test_a_query_does_not_take_a_topic_for_deleted_as_the_root_is_away(disk: Disk) -> None:
    source = DefaultSource({"path": str(disk.root), "subscribe": "t", "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit())
    restarted = source.streamReader(source.schema())
    for each in (reader, restarted):
        with disk.away(), pytest.raises(StorageError, match="Checkpoints and committed offsets are fine: mount it"):
            each.latestOffset(start, each.getDefaultReadLimit())
    assert reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_query_that_ends_with_what_is_there_goes_on_when_its_root_is_back(disk: Disk) -> None:
    """`Trigger.AvailableNow` asks what is there before Spark says that there is a checkpoint."""
    source, checkpoint = DefaultSource({"path": str(disk.root), "subscribe": "t", **EARLIEST}), Checkpoint()
    batches: list[list[bytes]] = []

    def run() -> None:
        Driver(
            source, checkpoint, lambda _, rows: batches.append([v for b in rows for v in b["value"].to_pylist()])
        ).run()

    with disk.away(), pytest.raises(RootNotFoundError, match=r"check the path, .* or make it with"):
        run()
    run()
    with (
        disk.away(),
        pytest.raises(RootNotAvailableError, match="Checkpoints and committed offsets are fine: mount it"),
    ):
        run()
    append(TopicLog(LocalStorage(disk.root), "t"), batch_of([b"d"]))
    run()
    assert batches == [[b"a", b"b", b"c"], [b"d"]]


def test_a_root_that_comes_back_as_a_query_starts_is_read_as_far_as_it_is_then(disk: Disk) -> None:
    source = DefaultSource({"path": str(disk.root), "subscribe": "t", **EARLIEST})
    start = source.streamReader(source.schema()).initialOffset()
    reader = source.streamReader(source.schema())
    with disk.away():
        reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(start, ReadAllAvailable())
    append(TopicLog(LocalStorage(disk.root), "t"), batch_of([b"d"]))
    assert first["t"] == reader.latestOffset(first, ReadAllAvailable())["t"] == {"0": 3}


def test_a_directory_that_another_process_has_just_made_is_no_root_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look finds no directory, the second one does: the root was there all the time."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t")
    assert log.topics() == ["t"]  # the root's marker was seen
    sync = local.sync_names

    def too_early(*_: object, **__: object) -> None:
        monkeypatch.setattr(local, "sync_names", sync)
        (tmp_path / "root/config").mkdir()
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(local, "sync_names", too_early)
    log.root.storage.sync_directory("config")
    assert local.sync_names is sync


def test_produce_and_cat_go_on_after_two_seconds_without_their_root(disk: Disk) -> None:
    """Lines come before it goes, while it is away, and after it is back; each is in the log once."""
    root, lines = str(disk.root), [b"%d\n" % number for number in range(60)]
    with (
        subprocess.Popen([*COMMAND, "cat", root, "t"], stdout=subprocess.PIPE) as reader,
        subprocess.Popen([*COMMAND, "produce", root, "t"], stdin=subprocess.PIPE, bufsize=0) as writer,
    ):
        assert writer.stdin is not None
        assert reader.stdout is not None
        writer.stdin.write(b"".join(lines[:20]))
        read = [reader.stdout.readline() for _ in range(23)]
        with disk.away():
            for line in lines[20:40]:
                writer.stdin.write(line)
                time.sleep(0.1)
        writer.stdin.write(b"".join(lines[40:]))
        writer.stdin.close()
        assert writer.wait(60) == 0
        read += [reader.stdout.readline() for _ in range(40)]
        reader.terminate()
        assert reader.wait(60) == 0
    assert read == [b"a\n", b"b\n", b"c\n", *lines]
    assert cat(root, "t", "-e").splitlines(keepends=True) == read


@pytest.mark.nightly
def test_all_of_this_holds_of_a_file_system_that_is_unmounted(tmp_path: Path) -> None:
    """In a mount namespace that goes with the tests; where nobody may have one this test fails and says so."""
    command = [*disks.namespace_command(), sys.executable, "-m", "pytest", __file__, "-m", "not nightly"]
    arguments = ["-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inside")]
    done = subprocess.run([*command, *arguments], env={**os.environ, disks.INSIDE: "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
