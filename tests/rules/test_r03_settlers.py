"""R3: one settler, under a lock that is only tried; nothing below a published length is ever touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CorruptionError, TopicChangedError
from pyspark_commitlog.storage.local import directories
from pyspark_commitlog.storage.local.directories import RootDirectories
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.appends import TellingStorage
from tests.support.records import append, batch_of, read_topic
from tests.support.world import World, many


def topic_id(topic: TopicLog) -> str:
    return topic.newest()[1].topic_id


def test_a_second_settler_gives_way_at_once(world: World) -> None:
    """R3: A is about to publish; B tries: it moves nothing and does not wait."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    tried: list[int | None] = []
    other = world.handle()
    act = on_path("/settle/", "put_if_absent", lambda: tried.append(settle(other, topic_id(other)).sequence))
    assert settle(world.handle(act), topic_id(topic)).records == 1
    assert tried == [None]
    assert settle(topic, topic_id(topic)).sequence is None, "nothing is left to do"
    assert world.values() == [b"a"]


def test_a_settler_reads_the_newest_entries_after_it_has_the_lock(world: World) -> None:
    """R3, I2: B settles and publishes just before A gets the lock: A must not cut back what B published."""
    topic = world.create()
    append(topic, batch_of(many(5)))
    storage = TellingStorage(world.path, clock=world.clock)
    slow = TopicLog(storage, "t")
    slow.settled(topic_id(slow))  # what it remembers is old when it gets the lock
    storage.before_lock = lambda: settle(topic, topic_id(topic))
    done = settle(slow, topic_id(slow))
    assert (done.sequence, done.records) == (None, 0)
    assert not hasattr(storage, "told"), "no log was opened for writing"
    assert world.values() == many(5)


def test_a_settler_that_lost_its_lock_publishes_nothing(world: World) -> None:
    """R3, I2: another settler published under A's hands (a lock that lied): A publishes nothing."""
    topic = world.create()
    append(topic, batch_of(many(3)))
    slow = world.handle(on_path("/settle/", "put_if_absent", lambda: second(world)))
    done = settle(slow, topic_id(slow))
    assert done.sequence is None
    settled = world.handle().settled(topic_id(topic))[1]
    assert settled.partition(0).end_offset == 5
    assert world.values() == [*many(3), b"x", b"y"]


def second(world: World) -> None:
    storage = TellingStorage(world.path, clock=world.clock)
    storage.always_locks = True
    other = TopicLog(storage, "t")
    append(other, batch_of([b"x", b"y"]))
    assert settle(other, topic_id(other)).records == 5


def test_nothing_below_a_published_length_is_written_or_cut(world: World) -> None:
    """R3, I2: every write and every cut of a .log lies at or beyond the length that the newest entry names."""
    topic = world.create(config={"segment.bytes": 2048, "inline.max.bytes": 0, "segment.index.bytes": 1024})
    for round_ in range(6):
        published = {row.active.stem: row.active.length for row in topic.settled(topic_id(topic))[1].partitions}
        append(topic, batch_of(many(20, b"%d-" % round_)))
        storage = TellingStorage(world.path, clock=world.clock)
        settle(TopicLog(storage, "t"), topic_id(topic))
        for operation, path, where in storage.told:
            stem, _, suffix = path.rsplit("/", 1)[1].partition(".")
            if suffix == "log" and operation != "sync":
                assert where >= published.get(stem, 0), (operation, path)
    assert len(world.values()) == 120


def test_a_torn_tail_is_cut_and_written_again(world: World) -> None:
    """R3, I8: bytes beyond the published length are normal; below it not a byte changes."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    settle(topic, topic_id(topic))
    (log,) = world.files("0.log")
    before = (world.path / "topics" / log.removeprefix("topics/")).read_bytes()
    with open(world.path / log, "ab") as file:
        file.write(b"torn" * 1000)
    append(topic, batch_of([b"b"]))
    settle(topic, topic_id(topic))
    after = (world.path / log).read_bytes()
    assert after.startswith(before)
    assert b"torn" not in after
    assert len(after) == topic.settled(topic_id(topic))[1].partition(0).active.length
    assert world.values() == [b"a", b"b"]


def test_a_log_that_lost_published_bytes_is_an_error_and_not_written_to(world: World) -> None:
    """R3, I8: shorter than published is corruption: the settler names the file and changes nothing."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    settle(topic, topic_id(topic))
    (log,) = world.files("0.log")
    os.truncate(world.path / log, 10)
    append(topic, batch_of([b"b"]))
    with pytest.raises(CorruptionError, match=r"has 10 bytes, \d+ were published"):
        settle(topic, topic_id(topic))
    assert (world.path / log).stat().st_size == 10


def test_readers_never_repair(world: World) -> None:
    """R3: a torn tail and a lost index lie there; a reader reads around them and changes nothing."""
    topic = world.create(config={"index.interval.bytes": 0, "inline.max.bytes": 0})
    append(topic, batch_of(many(10)))
    append(topic, batch_of(many(10)))
    settle(topic, topic_id(topic))
    (log,) = world.files("0.log")
    with open(world.path / log, "ab") as file:
        file.write(b"torn")
    (world.path / log.replace(".log", ".index")).unlink()
    changed: list[str] = []
    allowed = {"read", "fetch", "map", "info", "names"}
    reader = world.handle(lambda op, path, moment: None if op in allowed else changed.append(op))
    assert [record.value for record in read_topic(reader)] == [*many(10), *many(10)]
    assert changed == []


def test_the_lock_file_stays_the_same_file(world: World) -> None:
    """R3: an unlinked lock file would give two settlers a lock each."""
    topic = world.create()
    path = world.path / topic.paths(topic_id(topic)).lock
    inodes = set()
    for value in (b"a", b"b"):
        append(topic, batch_of([value]))
        world.collect_all()
        inodes.add(path.stat().st_ino)
    assert len(inodes) == 1


def test_where_locks_can_be_lost_nothing_is_appended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: on a network mount a settler puts an object in place of appending."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    monkeypatch.setattr(LocalStorage, "can_append", False)
    assert settle(topic, topic_id(topic)).records == 1
    assert world.files(".log") == []
    assert len(world.files(".segment")) == 1
    assert world.values() == [b"a"]


def test_a_settler_of_a_topic_made_again_touches_nothing(world: World) -> None:
    """R3, R14: waiting for the lock, the topic is deleted and made again."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    storage = TellingStorage(world.path, clock=world.clock)

    def remake() -> None:
        world.log().topic("t").delete()
        world.log().create_topic("t")

    storage.before_lock = remake
    with pytest.raises(TopicChangedError):
        settle(TopicLog(storage, "t"), topic_id(topic))
    assert not hasattr(storage, "told")


def test_no_lock_is_made_where_the_topic_is_gone(world: World) -> None:
    """R3: a disk that is not mounted leaves an empty directory; what is made there no other settler sees."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    found = topic_id(topic)
    (world.path / "topics").rename(world.path / "away")
    with pytest.raises(TopicChangedError, match="no settle journal"):
        settle(topic, found)
    assert not (world.path / "topics").exists()


def test_what_was_made_on_a_disk_that_went_is_not_taken_for_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I4: the directory that was synced is the mount point's; when the disk is back, its own is."""
    root, away = tmp_path / "root", tmp_path / "away"
    CommitLog(str(root)).create_topic("t")
    shutil.rmtree(root / "topics")
    make, storage = RootDirectories._make, LocalStorage(root)

    def unmounted(directories: RootDirectories, path: Path, home: int | None) -> None:
        make(directories, path, home)
        if path.name == "topics":
            root.rename(away)
            root.mkdir()

    with monkeypatch.context() as patched:
        patched.setattr(RootDirectories, "_make", unmounted)
        with pytest.raises(FileNotFoundError, match="unmounted meanwhile"):
            storage.make_directory("topics/t")
    root.rmdir()
    away.rename(root)
    synced = list[Path]()
    monkeypatch.setattr(directories, "sync_names", lambda directory, *_, **__: synced.append(directory))
    storage.make_directory("topics/t")
    assert root in synced


@pytest.mark.parametrize("has_topics", [True, False])
def test_a_disk_that_is_unmounted_while_a_directory_is_made_gets_none_below_its_mount_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_topics: bool
) -> None:
    """R3: else the next process takes what was made there for a log whose disk is mounted."""
    root = tmp_path / "root"
    CommitLog(str(root)).create_topic("t")
    if not has_topics:
        shutil.rmtree(root / "topics")
    make = RootDirectories._make

    def unmounted(directories: RootDirectories, path: Path, home: int | None) -> None:
        if path.name == ("made" if has_topics else "topics"):
            root.rename(tmp_path / "away")
            root.mkdir()
        make(directories, path, home)

    monkeypatch.setattr(RootDirectories, "_make", unmounted)
    with pytest.raises(FileNotFoundError):
        LocalStorage(root).create("topics/t/made/staged/chunk")
    assert not list(root.iterdir())
